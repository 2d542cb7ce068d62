//! The subcommands.

pub(crate) mod bench;
pub(crate) mod call;
pub(crate) mod describe;
pub(crate) mod list;
pub(crate) mod lock;
pub(crate) mod new;
pub(crate) mod openapi;
#[cfg(feature = "pubsub")]
pub(crate) mod publish;
pub(crate) mod replay;
pub(crate) mod serve;
#[cfg(feature = "pubsub")]
pub(crate) mod subscribe;
pub(crate) mod top;

/// Returns the directories with the imports of proto files: the given ones, or the directories of the files.
#[cfg(feature = "proto")]
fn proto_dirs(protos: &[std::path::PathBuf], imports: &[std::path::PathBuf]) -> Vec<std::path::PathBuf> {
    if !imports.is_empty() {
        return imports.to_vec();
    }
    let dirs = protos.iter().filter_map(|path| path.parent());
    dirs.map(|dir| if dir.as_os_str().is_empty() { ".".into() } else { dir.to_owned() }).collect()
}
