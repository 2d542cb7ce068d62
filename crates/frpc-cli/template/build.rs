fn main() -> Result<(), frpc_build::Error> {
    frpc_build::configure()
        .json(true)
        .compile_protos(&["proto/greeter.proto"], &["proto"])
}
