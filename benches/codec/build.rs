//! Compiles the messages that the benches encode and decode.

fn main() -> Result<(), frpc_build::Error> {
    let mut builder = frpc_build::configure().bytes(".codec.Blob");
    for message in [".codec.Echo", ".codec.Record", ".codec.Item"] {
        builder = builder.type_attribute(message, DERIVES_OF_OTHER_FORMATS);
    }
    builder.compile_protos(&["proto/codec.proto"], &["proto"])
}

const DERIVES_OF_OTHER_FORMATS: &str = "#[derive(::serde::Serialize, ::serde::Deserialize)]
#[derive(::rkyv::Archive, ::rkyv::Serialize, ::rkyv::Deserialize)]";
