//! The types that the fields of a message can have in Rust.

use std::borrow::BorrowMut;

use bytes::Bytes;

/// A type that a field of type `bytes` can have when it is read.
pub trait Blob {
    /// True if the bytes are copied, and charged for.
    const IS_COPY: bool;

    /// Takes `bytes`, which are part of `content`.
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

/// The place of a message within its field: the field itself, or a box.
pub trait Storage<M>: From<M> + BorrowMut<M> {
    /// The number of bytes of the message that are allocated.
    const ALLOCATED_LEN: usize;
}

impl<M> Storage<M> for M {
    const ALLOCATED_LEN: usize = 0;
}

impl<M> Storage<M> for Box<M> {
    const ALLOCATED_LEN: usize = size_of::<M>();
}

/// Returns how many bytes a hash table with this many entries takes.
pub(in crate::codec) fn hash_table_len(count: usize, entry_len: usize) -> usize {
    if count == 0 {
        return 0;
    }
    // Buckets are a power of two, of which an eighth is free. Each has a byte beside it.
    let buckets = count.saturating_mul(8).div_ceil(7).checked_next_power_of_two().unwrap_or(usize::MAX);
    buckets.max(BUCKETS_MIN).saturating_mul(entry_len + 1).saturating_add(HASH_TABLE_LEN)
}

/// Returns how many bytes a tree with this many entries takes at most.
pub(in crate::codec) fn tree_len(count: usize, entry_len: usize) -> usize {
    if count == 0 {
        return 0;
    }
    // A node has room for 11 entries. All but the root have at least five, and those above the leaves six nodes below.
    let leaves = ((count + 1) / 6).max(1);
    let nodes_above = if leaves > 1 { 1 + leaves / 5 } else { 0 };
    let leaf_len = 11 * entry_len + TREE_NODE_LEN;
    leaves.saturating_mul(leaf_len).saturating_add(nodes_above.saturating_mul(leaf_len + TREE_EDGES_LEN))
}

/// The bytes that an allocator adds to an allocation.
pub(in crate::codec) const ALLOCATION_LEN: usize = 16;
/// The least number of buckets of a hash table that has any.
const BUCKETS_MIN: usize = 4;
/// The bytes that a hash table has beside its buckets. One of tiny entries has some more of them.
const HASH_TABLE_LEN: usize = 64;
/// The bytes that a node of a tree has beside its entries, and those that the allocator adds.
const TREE_NODE_LEN: usize = 16 + ALLOCATION_LEN;
/// The bytes that a node above the leaves has in addition.
const TREE_EDGES_LEN: usize = 12 * size_of::<usize>();
