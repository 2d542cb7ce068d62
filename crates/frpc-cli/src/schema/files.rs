//! Schemas from files.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use frpc_dynamic::DynamicSchema;

use crate::failure::{CommandError, Result};

/// Compiles proto files and adds their declarations.
#[cfg(not(feature = "proto"))]
pub(super) fn add_protos(_: &mut DynamicSchema, protos: &[PathBuf], _: &[PathBuf]) -> Result<()> {
    match protos {
        [] => Ok(()),
        _ => Err(CommandError::left_out("proto", "compiler for proto files").with_try(
            "--descriptor-set FILE, with the output of `protoc --include_imports -o FILE` or `buf build -o FILE`",
        )),
    }
}

/// Compiles proto files and adds their declarations.
#[cfg(feature = "proto")]
pub(super) fn add_protos(schema: &mut DynamicSchema, protos: &[PathBuf], imports: &[PathBuf]) -> Result<()> {
    if protos.is_empty() {
        return Ok(());
    }
    // Report a missing file here: the compiler would only say that no import directory contains it.
    if let Some(missing) = protos.iter().find(|path| imports.is_empty() && !path.exists()) {
        return Err(CommandError::new(format!("there is no file {}", missing.display())));
    }
    let includes = proto_dirs(protos, imports);
    let set = frpc_build::configure().emit_rerun_if_changed(false).descriptor_set(protos, &includes);
    let set = set.map_err(|error| {
        let failure = CommandError::new(format!("{error}").trim_end());
        match error.is_file_not_found() {
            true => failure.with_try("-I DIR, for each directory with imports"),
            false => failure,
        }
    })?;
    schema.add_set(&set).map_err(|error| failed("the proto files", &error))
}

/// Returns the directories with the imports of proto files: the given ones, or the directories of the files.
#[cfg(feature = "proto")]
pub(crate) fn proto_dirs(protos: &[PathBuf], imports: &[PathBuf]) -> Vec<PathBuf> {
    if !imports.is_empty() {
        return imports.to_vec();
    }
    let dirs = protos.iter().filter_map(|path| path.parent());
    dirs.map(|dir| if dir.as_os_str().is_empty() { ".".into() } else { dir.to_owned() }).collect()
}

/// Adds the declarations of a descriptor set.
pub(super) fn add_set(schema: &mut DynamicSchema, path: &Path) -> Result<()> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|error| CommandError::new(format!("{shown}: {error}")))?;
    add_descriptors(schema, &bytes, &shown.to_string()).map_err(|failure| {
        failure.with_try("`protoc --include_imports -o FILE` or `buf build -o FILE`, or --proto for a proto file")
    })
}

/// Adds the declarations of an encoded descriptor set.
pub(super) fn add_descriptors(schema: &mut DynamicSchema, bytes: &[u8], from: &str) -> Result<()> {
    schema.add_set(bytes).map_err(|error| failed(from, &error))
}

fn failed(from: &str, error: &impl fmt::Display) -> CommandError {
    CommandError::new(format!("{from}: {error}"))
}
