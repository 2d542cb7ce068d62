//! Compiles proto files with names and structures that are hard to express in Rust. The test is that the crate
//! compiles.

use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));

    frpc_build::configure().json(true).mocks(true).compile_protos(
        &[
            "proto/names/cases.proto",
            "proto/names/keywords.proto",
            "proto/names/keyword_package/match.proto",
            "proto/names/many_fields.proto",
            "proto/names/old.proto",
            "proto/names/prelude_services.proto",
            "proto/names/same.proto",
            "proto/names/shapes.proto",
            "proto/codec/hostile.proto",
            "proto/no_package.proto",
            "proto/many/first.proto",
            "proto/many/nothing.proto",
            "proto/many/only_service.proto",
            "proto/public/acme/order/v1/order.proto",
        ],
        &["proto", "proto/public"],
    )?;

    // The same fields with other types. The encoding must not depend on them.
    frpc_build::configure()
        .json(true)
        .out_dir(out_dir.join("other"))
        .bytes(".")
        .btree_map(".")
        .boxed(".names.shapes.WellKnown.timestamp")
        .boxed(".names.shapes.Choices.all.f_empty")
        .extern_path(".many", "crate::many")
        .compile_protos(
            &[
                "proto/names/shapes.proto",
                "proto/names/many_fields.proto",
                "proto/many/first.proto",
                "proto/codec/hostile.proto",
            ],
            &["proto"],
        )?;

    frpc_build::configure()
        .json(true)
        .out_dir(out_dir.join("well_known"))
        .compile_well_known_types(true)
        .type_attribute(".", "#[allow(missing_docs)]")
        .compile_protos(&["proto/names/shapes.proto"], &["proto"])?;

    frpc_build::configure()
        .json(true)
        .out_dir(out_dir.join("vectors"))
        .compile_protos(&["../vectors/vectors.proto"], &["../vectors"])?;

    // The golden messages again, now with an `Option` for each required field.
    let golden = "../../crates/frpc-build/tests/golden/required";
    frpc_build::configure()
        .json(true)
        .out_dir(out_dir.join("optional"))
        .extern_path(".buf.validate", "::rules")
        .extern_path(".google.api", "::rules")
        .compile_protos(&[format!("{golden}/required.proto")], &[golden])?;

    // Required fields of proto2, in messages that are hard to express in Rust.
    frpc_build::configure()
        .json(true)
        .required_fields(true)
        .field_masks(true)
        .pages(true)
        .out_dir(out_dir.join("strict"))
        .boxed(".names.old.Old.inner")
        .bytes(".")
        .extern_path(".google.api", "::rules")
        .compile_protos(
            &["proto/names/old.proto", "proto/accepted/old_defaults.proto", "proto/marks.proto"],
            &["proto", "proto/accepted", golden],
        )?;

    frpc_build::configure()
        .json(true)
        .field_masks(true)
        .pages(true)
        .out_dir(out_dir.join("masks"))
        .compile_protos(&["proto/masks/library.proto"], &["proto/masks"])?;

    frpc_build::configure()
        .json(true)
        .field_masks(true)
        .out_dir(out_dir.join("editions"))
        .compile_descriptor_set("../vectors/editions.binpb")?;

    let dir = "proto/accepted";
    println!("cargo:rerun-if-changed={dir}");
    let protos = fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    frpc_build::configure()
        .json(true)
        .mocks(true)
        .field_masks(true)
        .out_dir(out_dir.join("accepted"))
        .compile_protos(&protos, &[dir])?;

    frpc_build::configure()
        .json(true)
        .out_dir(out_dir.join("google"))
        .compile_well_known_types(true)
        .compile_protos(&["proto/google.proto"], &["proto"])?;
    Ok(())
}
