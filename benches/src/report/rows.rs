//! The workloads of the published tables and charts.

/// The rows of the table of calls over frisbee: workloads, with their names on the page.
pub(crate) const ROWS: [(&str, &str); 17] = [
    ("32B-C1-K1", "C=1 K=1"),
    ("32B-C32-K1", "C=32 K=1"),
    ("32B-C256-K1", "C=256 K=1"),
    ("32B-C8192-K1", "C=8192 K=1"),
    ("32B-C1-K10", "C=1 K=10"),
    ("32B-C32-K10", "C=32 K=10"),
    ("32B-C256-K10", "C=256 K=10"),
    ("32B-C1024-K10", "C=1024 K=10"),
    ("128KiB-string-C32-K1", "128 KiB `string`, C=32 K=1"),
    ("128KiB-bytes-C32-K1", "128 KiB `bytes`, C=32 K=1"),
    ("1MiB-string-C32-K1", "1 MiB `string`, C=32 K=1"),
    ("1MiB-bytes-C32-K1", "1 MiB `bytes`, C=32 K=1"),
    ("50us-C32-K10", "handler sleeps 50 µs, C=32 K=10"),
    ("50us-C256-K10", "handler sleeps 50 µs, C=256 K=10"),
    ("stream-32B-C1-K1", "one stream of 32 B"),
    ("stream-16KiB-C1-K1", "one stream of 16 KiB"),
    ("stream-1MiB-C1-K1", "one stream of 1 MiB"),
];

/// The rows of the table of gRPC.
pub(crate) const GRPC_ROWS: [(&str, &str); 10] = [
    ("grpc-32B-C32-K1", "C=32 K=1"),
    ("grpc-32B-C32-K10", "C=32 K=10"),
    ("grpc-32B-C32-K100", "C=32 K=100"),
    ("grpc-stream-32B-C1-K1", "one stream of 32 B"),
    ("grpc-stream-16KiB-C1-K1", "one stream of 16 KiB"),
    ("grpc-stream-1MiB-C1-K1", "one stream of 1 MiB"),
    ("grpc-servers-32B-C32-K1", "servers with one client, C=32 K=1"),
    ("grpc-servers-32B-C32-K10", "servers with one client, C=32 K=10"),
    ("grpc-clients-32B-C32-K1", "clients with one server, C=32 K=1"),
    ("grpc-clients-32B-C32-K10", "clients with one server, C=32 K=10"),
];

/// The name of all these rows together, for the option `--row`.
pub(crate) const GROUP: &str = "published";

/// Returns `true` for the workloads of the published tables and charts.
pub(crate) fn is_published(workload: &str) -> bool {
    ROWS.iter().chain(&GRPC_ROWS).any(|(name, _)| *name == workload)
}
