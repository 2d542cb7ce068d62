use std::env;

use frisbee::Engine;

/// Returns the engines available here. Excludes tokio-uring, because it panics where the kernel refuses a ring.
pub fn engines() -> impl Iterator<Item = Engine> {
    [Engine::Tokio, Engine::PerCore].into_iter().chain(rings())
}

/// Returns the available engines on our own rings: with all features of this kernel, and limited to those of older
/// kernels.
pub fn rings() -> impl Iterator<Item = Engine> {
    [Engine::Uring, Engine::UringPortable].into_iter().filter(|engine| can_be_had(*engine))
}

/// Returns `true` if an engine is available here, and prints the reason otherwise.
///
/// # Panics
///
/// Panics on Linux if `CI` is set and the engine is not available. CI is the only place where every engine is tested.
pub fn can_be_had(engine: Engine) -> bool {
    let Err(reason) = engine.choose() else { return true };
    let is_ci = cfg!(target_os = "linux") && env::var_os("CI").is_some();
    assert!(!is_ci, "the engine {engine} has to be tested in CI: {reason}");
    println!("skipped: {reason}");
    false
}
