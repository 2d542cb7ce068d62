//! Compiles the messages that the benches encode and decode, and once more for pbjson, which implements the same traits of serde as
//! derives do.

use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = frpc_build::configure().json(true).bytes(".codec.Blob");
    for message in [".codec.Echo", ".codec.Record", ".codec.Item"] {
        builder = builder.type_attribute(message, DERIVES_OF_OTHER_FORMATS);
    }
    builder.compile_protos(&["proto/codec.proto"], &["proto"])?;

    let dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("pbjson");
    fs::create_dir_all(&dir)?;
    let descriptors = dir.join("descriptors.binpb");
    frpc_build::configure()
        .out_dir(&dir)
        .file_descriptor_set_path(&descriptors)
        .compile_protos(&["proto/codec.proto"], &["proto"])?;
    pbjson_build::Builder::new().register_descriptors(&fs::read(&descriptors)?)?.out_dir(&dir).build(&[".codec"])?;
    Ok(())
}

const DERIVES_OF_OTHER_FORMATS: &str = "#[derive(::serde::Serialize, ::serde::Deserialize)]
#[derive(::rkyv::Archive, ::rkyv::Serialize, ::rkyv::Deserialize)]";
