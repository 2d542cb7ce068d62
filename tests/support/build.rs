//! Compiles the schema that the peers in Go speak, and those of the tests of calls.

#[cfg(feature = "full")]
fn main() -> Result<(), frpc_build::Error> {
    let out_dir = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for version in ["old", "new"] {
        let dir = format!("proto/schemas/{version}");
        frpc_build::configure()
            .out_dir(out_dir.join(version))
            .compile_protos(&[format!("{dir}/schemas.proto")], &[dir])?;
    }
    for (name, has_required_fields) in [("required", true), ("optional", false)] {
        frpc_build::configure()
            .json(true)
            .required_fields(has_required_fields)
            .out_dir(out_dir.join(name))
            .extern_path(".buf.validate", "::none")
            .extern_path(".google.api", "::none")
            .compile_protos(&["proto/contracts.proto"], &["proto"])?;
    }
    frpc_build::configure()
        .json(true)
        .out_dir(out_dir.join("editions"))
        .compile_protos(&["proto/editions.proto"], &["proto"])?;
    let library = "../../crates/frpc-rest/tests";
    frpc_build::configure()
        .rest(true)
        .openapi("library.json")
        .openapi_info("Library", "1.0.0")
        .out_dir(out_dir.join("rest"))
        .compile_protos(&[format!("{library}/library.proto")], &[library])?;
    frpc_build::configure()
        .rest(true)
        .mocks(true)
        .first_operation("callback.proto", 200)
        .first_operation("paint.proto", 210)
        .compile_protos(
            &[
                "../go/interop.proto",
                "proto/callback.proto",
                "proto/echo.proto",
                "proto/paint.proto",
                "proto/test.proto",
            ],
            &["../go", "proto"],
        )
}

#[cfg(not(feature = "full"))]
fn main() {}
