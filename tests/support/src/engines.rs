use std::env;

use frisbee::Engine;

/// Returns the engines that can be had here, but for that of tokio-uring: it panics where a ring cannot be made.
pub fn engines() -> impl Iterator<Item = Engine> {
    [Engine::Tokio, Engine::PerCore].into_iter().chain(rings())
}

/// Returns the engines on rings of our own that can be had here: as this kernel allows, and as older ones do.
pub fn rings() -> impl Iterator<Item = Engine> {
    [Engine::Uring, Engine::UringPortable].into_iter().filter(|engine| can_be_had(*engine))
}

/// Tells whether an engine can be had here, and prints the reason if not.
///
/// # Panics
///
/// If it cannot where `CI` is set, on Linux: what CI has not tested, nobody has.
pub fn can_be_had(engine: Engine) -> bool {
    let Err(reason) = engine.choose() else { return true };
    let is_ci = cfg!(target_os = "linux") && env::var_os("CI").is_some();
    assert!(!is_ci, "the engine {engine} has to be tested in CI: {reason}");
    println!("skipped: {reason}");
    false
}
