//! Schemas from files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use prost_reflect::DescriptorPool;

use crate::failure::{CommandError, Result};

/// Compiles proto files and adds their declarations.
#[cfg(not(feature = "proto"))]
pub(super) fn add_protos(_: &mut DescriptorPool, protos: &[PathBuf], _: &[PathBuf]) -> Result<()> {
    match protos {
        [] => Ok(()),
        _ => Err(CommandError::left_out("proto", "compiler for proto files").with_try(
            "--descriptor-set FILE, with the output of `protoc --include_imports -o FILE` or `buf build -o FILE`",
        )),
    }
}

/// Compiles proto files and adds their declarations.
#[cfg(feature = "proto")]
pub(super) fn add_protos(pool: &mut DescriptorPool, protos: &[PathBuf], imports: &[PathBuf]) -> Result<()> {
    if protos.is_empty() {
        return Ok(());
    }
    // Report a missing file here: the compiler would only say that no import directory contains it.
    if let Some(missing) = protos.iter().find(|path| imports.is_empty() && !path.exists()) {
        return Err(CommandError::new(format!("there is no file {}", missing.display())));
    }
    let own = protos.iter().filter_map(|path| path.parent());
    let own: Vec<&Path> = own.map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir }).collect();
    let includes = if imports.is_empty() { own } else { imports.iter().map(PathBuf::as_path).collect() };
    let compiled = protox::Compiler::new(&includes).and_then(|mut compiler| {
        compiler.include_imports(true).include_source_info(true);
        compiler.open_files(protos)?;
        Ok(compiler.file_descriptor_set())
    });
    let set = compiled.map_err(|error| {
        let text = format!("{error:?}");
        let is_placed =
            protos.iter().filter_map(|path| path.file_name()).any(|name| text.contains(&*name.to_string_lossy()));
        // For an error at the end of a file, the compiler does not name the file.
        let failure = match protos {
            [only] if !is_placed => CommandError::new(format!("{}: {text}", only.display())),
            _ => CommandError::new(text),
        };
        match error.is_file_not_found() {
            true => failure.with_try("-I DIR, for each directory with imports"),
            false => failure,
        }
    })?;
    add(pool, set.file, "the proto files")
}

/// Adds the declarations of a descriptor set.
pub(super) fn add_set(pool: &mut DescriptorPool, path: &Path) -> Result<()> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|error| CommandError::new(format!("{shown}: {error}")))?;
    add_descriptors(pool, &bytes, &shown.to_string()).map_err(|failure| {
        failure.with_try("`protoc --include_imports -o FILE` or `buf build -o FILE`, or --proto for a proto file")
    })
}

/// Adds the declarations of an encoded descriptor set.
pub(super) fn add_descriptors(pool: &mut DescriptorPool, bytes: &[u8], from: &str) -> Result<()> {
    let set = <frpc::prost_types::FileDescriptorSet as frpc::prost::Message>::decode(bytes);
    let set = set.map_err(|error| CommandError::new(format!("{from} is not a descriptor set: {error}")))?;
    add(pool, set.file, from)
}

fn add(pool: &mut DescriptorPool, files: Vec<frpc::prost_types::FileDescriptorProto>, from: &str) -> Result<()> {
    // The well-known types are already present and do not change.
    let files: Vec<_> = files.into_iter().filter(|file| pool.get_file_by_name(file.name()).is_none()).collect();
    pool.add_file_descriptor_protos(files).map_err(|error| CommandError::new(format!("{from}: {error}")))
}
