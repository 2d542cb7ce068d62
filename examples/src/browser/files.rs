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
        let extension = path.extension().and_then(|extension| extension.to_str());
        Self {
            content: fs::read(path).ok().map(Bytes::from),
            content_type: match extension {
                Some("html") => "text/html; charset=utf-8",
                Some("wasm") => "application/wasm",
                _ => "text/javascript; charset=utf-8",
            },
        }
    }

    /// Returns this page with another script.
    pub(super) fn with_script(&self, script: &str) -> Self {
        let page = self.content.as_deref().map(String::from_utf8_lossy);
        let changed = page.map(|page| {
            page.replace(r#"<script type="module" src="/page.js">"#, &format!(r#"<script type="module">{script}"#))
        });
        Self { content: changed.map(Bytes::from), content_type: self.content_type }
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

/// Adds the scripts and WebAssembly of a folder, recursively.
pub(super) fn add_programs(files: &mut Files, path: &str, folder: &Path) {
    // A missing folder has no scripts. The page reports the problem.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, file) = (entry.file_name(), entry.path());
        let path = format!("{path}/{}", name.to_string_lossy());
        if file.is_dir() {
            add_programs(files, &path, &file);
        } else if path.ends_with(".js") || path.ends_with(".wasm") {
            files.insert(path, File::read(&file));
        }
    }
}
