//! Files read at startup and served from memory.

use std::{collections::BTreeMap, fs, path::Path};

use bytes::Bytes;
use frpc_http::{Mount, MountContext};
use futures_util::future::{BoxFuture, ready};

/// Files by URL path.
pub(super) type Files = BTreeMap<String, File>;

/// A file of the page.
pub(super) struct File {
    /// `None` for a missing file, such as the page before `browser/start` has compiled it.
    content: Option<Bytes>,
    content_type: &'static str,
}

impl File {
    pub(super) fn read(path: &Path) -> Self {
        let is_page = path.extension().is_some_and(|extension| extension == "html");
        Self {
            content: fs::read(path).ok().map(Bytes::from),
            content_type: if is_page { "text/html; charset=utf-8" } else { "text/javascript; charset=utf-8" },
        }
    }
}

impl Mount for File {
    fn respond<'a>(&'a self, _: MountContext, _: http::Request<Bytes>) -> BoxFuture<'a, http::Response<Bytes>> {
        let (status, content) = match &self.content {
            Some(content) => (http::StatusCode::OK, content.clone()),
            None => (http::StatusCode::NOT_FOUND, Bytes::from_static(b"examples/browser/start compiles the page")),
        };
        let response = http::Response::builder().status(status).header(http::header::CONTENT_TYPE, self.content_type);
        Box::pin(ready(response.body(content).expect("its headers are constants")))
    }
}

/// Adds the scripts of a folder, recursively.
pub(super) fn add_scripts(files: &mut Files, path: &str, folder: &Path) {
    // A missing folder has no scripts. The page reports the problem.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, file) = (entry.file_name(), entry.path());
        let path = format!("{path}/{}", name.to_string_lossy());
        if file.is_dir() {
            add_scripts(files, &path, &file);
        } else if path.ends_with(".js") {
            files.insert(path, File::read(&file));
        }
    }
}
