//! Rust types for the fields of messages.

use std::borrow::BorrowMut;

use bytes::Bytes;

/// A Rust type for a `bytes` field in decoding.
pub trait Blob {
    /// `true` if the bytes are copied and count as memory.
    const IS_COPY: bool;

    /// Creates the value from `bytes`, a slice of `content`.
    fn from_content(bytes: &[u8], content: &Bytes) -> Self;
}

impl Blob for Vec<u8> {
    const IS_COPY: bool = true;

    fn from_content(bytes: &[u8], _: &Bytes) -> Self {
        bytes.to_vec()
    }
}

impl Blob for Bytes {
    const IS_COPY: bool = false;

    #[inline]
    fn from_content(bytes: &[u8], content: &Bytes) -> Self {
        content.slice_ref(bytes)
    }
}

/// Storage of a message in its field: the message itself or a box.
pub trait MessageStorage<M>: From<M> + BorrowMut<M> {
    /// Number of bytes allocated on the heap for the message.
    const ALLOCATED_LEN: usize;
}

impl<M> MessageStorage<M> for M {
    const ALLOCATED_LEN: usize = 0;
}

impl<M> MessageStorage<M> for Box<M> {
    const ALLOCATED_LEN: usize = size_of::<M>();
}

/// Returns the memory in bytes of a hash table with this many entries.
pub(in crate::codec) fn hash_table_len(count: usize, entry_len: usize) -> usize {
    if count == 0 {
        return 0;
    }
    // The number of buckets is a power of two, with at least one eighth free. Each bucket has one control byte.
    let buckets = count.saturating_mul(8).div_ceil(7).checked_next_power_of_two().unwrap_or(usize::MAX);
    buckets.max(BUCKETS_MIN).saturating_mul(entry_len + 1).saturating_add(HASH_TABLE_LEN)
}

/// Returns the maximum memory in bytes of a B-tree with this many entries.
pub(in crate::codec) fn tree_len(count: usize, entry_len: usize) -> usize {
    if count == 0 {
        return 0;
    }
    // A node holds up to 11 entries. All nodes except the root hold at least five, and inner nodes have at least six
    // children.
    let leaves = ((count + 1) / 6).max(1);
    let nodes_above = if leaves > 1 { 1 + leaves / 5 } else { 0 };
    let leaf_len = 11 * entry_len + TREE_NODE_LEN;
    leaves.saturating_mul(leaf_len).saturating_add(nodes_above.saturating_mul(leaf_len + TREE_EDGES_LEN))
}

/// Overhead of the allocator per allocation, in bytes.
pub(in crate::codec) const ALLOCATION_LEN: usize = 16;
/// Minimum number of buckets of a non-empty hash table.
const BUCKETS_MIN: usize = 4;
/// Bytes of a hash table in addition to its buckets. Tables of tiny entries need slightly more.
const HASH_TABLE_LEN: usize = 64;
/// Bytes of a B-tree node in addition to its entries, including the overhead of the allocator.
const TREE_NODE_LEN: usize = 16 + ALLOCATION_LEN;
/// Additional bytes of an inner node.
const TREE_EDGES_LEN: usize = 12 * size_of::<usize>();
