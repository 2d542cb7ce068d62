//! Conversations with the crate etcd-client. It brings tonic, and its build needs `protoc`.
