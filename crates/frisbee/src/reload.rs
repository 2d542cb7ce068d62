//! Values from files, read again when the files change.

use std::{
    fmt, fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use tracing::{info, warn};

/// A value from files. Its users look for changes, at most once per second.
pub(crate) struct Reloaded<T: ?Sized> {
    files: Vec<PathBuf>,
    load: Box<dyn Fn() -> Result<Arc<T>, String> + Send + Sync>,
    state: Mutex<ReloadState<T>>,
}

struct ReloadState<T: ?Sized> {
    value: Arc<T>,
    seen: Vec<FileStamp>,
    checked: Instant,
}

/// The state of a file. `None` if it is unreadable.
type FileStamp = Option<(SystemTime, u64)>;

impl<T: ?Sized> Reloaded<T> {
    /// Loads the value for the first time.
    pub(crate) fn new<E: fmt::Display>(
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<Arc<T>, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // Before the value, so that a change in between is noticed.
        let seen = stamps(&files);
        let state = ReloadState { value: load()?, seen, checked: Instant::now() };
        let load = move || load().map_err(|error| error.to_string());
        Ok(Self { files, load: Box::new(load), state: Mutex::new(state) })
    }

    /// Returns `true` if the value comes from files.
    pub(crate) fn can_change(&self) -> bool {
        !self.files.is_empty()
    }

    /// Returns the value. After an error, the last one remains until the files change again.
    pub(crate) fn current(&self) -> Arc<T> {
        // A panic under the lock leaves a valid value.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.can_change() && state.checked.elapsed() >= CHECK_PERIOD {
            state.checked = Instant::now();
            let seen = stamps(&self.files);
            if seen != state.seen {
                state.seen = seen;
                match (self.load)() {
                    Ok(value) => {
                        info!(files = ?self.files, "read changed files again");
                        state.value = value;
                    }
                    Err(error) => warn!(%error, "cannot use changed files, the last content remains in use"),
                }
            }
        }
        state.value.clone()
    }
}

impl<T: ?Sized> fmt::Debug for Reloaded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloaded").field("files", &self.files).finish_non_exhaustive()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<FileStamp> {
    let stamp = |file| fs::metadata(file).and_then(|found| Ok((found.modified()?, found.len()))).ok();
    files.iter().map(stamp).collect()
}

/// The shortest time between two looks at the files.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn errors_leave_the_last_value() {
        let file = env::temp_dir().join(format!("frisbee-reload-{}", std::process::id()));
        fs::write(&file, "1").unwrap();
        let load = {
            let file = file.clone();
            move || fs::read_to_string(&file).unwrap().parse::<u32>().map(Arc::new)
        };
        let reloaded = Reloaded::new(vec![file.clone()], load).unwrap();
        let after_writing = |text: &str| {
            fs::write(&file, text).unwrap();
            reloaded.state.lock().unwrap().checked = Instant::now().checked_sub(CHECK_PERIOD).unwrap();
            *reloaded.current()
        };
        let values = ["22", "half", "4444"].map(after_writing);
        fs::remove_file(&file).unwrap();
        assert_eq!(values, [22, 22, 4444]);
    }
}
