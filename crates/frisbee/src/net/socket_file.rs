//! The files of Unix sockets.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The file of a Unix socket, with its identity at creation.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: FileIdentity,
    /// `true` while another process may use the file.
    pub(super) is_kept: bool,
}

impl SocketFile {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)?, is_kept: false })
    }

    /// Represents a socket file that another process owns and may hand over to this one.
    pub(super) fn of_another_process(path: &Path) -> io::Result<Self> {
        let mut file = Self::new(path)?;
        file.is_kept = true;
        Ok(file)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may have been removed and replaced by another server's socket.
        if !self.is_kept && identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The identity of a file: device, inode number, and creation time if known.
///
/// The creation time matters because an inode number is reused once the file is removed and its socket closed.
type FileIdentity = (u64, u64, Option<SystemTime>);

fn identity(path: &Path) -> io::Result<FileIdentity> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino(), metadata.created().ok()))
}
