//! Compiles the services of gRPC.

fn main() -> Result<(), frpc_build::Error> {
    // Far above the operations of services of one's own, which count from 10, so that plain peers can call both.
    frpc_build::configure()
        .json(true)
        .first_operation("grpc/health/v1/health.proto", 65_000)
        .first_operation("grpc/reflection/v1/reflection.proto", 65_010)
        .first_operation("grpc/reflection/v1alpha/reflection.proto", 65_020)
        .bytes(".grpc.reflection")
        .compile_protos(
            &[
                "proto/grpc/health/v1/health.proto",
                "proto/grpc/reflection/v1/reflection.proto",
                "proto/grpc/reflection/v1alpha/reflection.proto",
            ],
            &["proto"],
        )
}
