//! Peers that write the wire by hand: plain clients, and hostile ones.
