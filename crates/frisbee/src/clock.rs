//! The clock of the platform. In a browser, the one of the standard library panics.

#[cfg(not(target_family = "wasm"))]
pub use std::time::Instant;
#[cfg(target_family = "wasm")]
pub use web_time::Instant;

/// Returns the time of day.
pub fn time_of_day() -> std::time::SystemTime {
    #[cfg(not(target_family = "wasm"))]
    return std::time::SystemTime::now();
    #[cfg(target_family = "wasm")]
    return web_time::web::SystemTimeExt::to_std(web_time::SystemTime::now());
}
