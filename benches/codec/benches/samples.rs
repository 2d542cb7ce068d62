//! The values that are encoded and decoded, the same in every format.

frpc::include_protos!();

/// The same messages with the JSON of pbjson.
pub mod pbjson {
    include!(concat!(env!("OUT_DIR"), "/pbjson/codec.rs"));
    include!(concat!(env!("OUT_DIR"), "/pbjson/codec.serde.rs"));
}

use codec::{Echo, Item, Record, State};

pub fn echo() -> Echo {
    Echo { text: "The quick brown fox jumps again.".into() }
}

pub fn record() -> Record {
    Record {
        id: "3f2a9c1e-77d0-4b52-9d1c-0a55b1e0c6f4".into(),
        customer: "Müller & Söhne GmbH".into(),
        email: "orders@mueller-soehne.example".into(),
        street: "Lange Straße 112".into(),
        city: "Hildesheim".into(),
        country: "DE".into(),
        note: "Please ring twice; the bell of the back door does not work, and the dog is friendly.".into(),
        revision: 7,
        delta: -3,
        created_at: 1_718_000_000_123,
        changed_at: 1_718_000_360_456,
        quantity: 12,
        flags: 0x8041,
        serial: 9_007_199_254_740_993,
        hash: 0xcbf2_9ce4_8422_2325,
        offset: -40,
        balance: -123_456,
        checksum: 0xdead_beef,
        token: 0x0123_4567_89ab_cdef,
        east: 9_950_000,
        north: 52_150_000,
        weight: 12.5,
        price: 1_999.99,
        discount: 0.15,
        is_paid: true,
        is_gift: false,
        state: State::Shipped.into(),
        signature: (0..64).collect(),
        item: Some(item(4711)),
        tags: ["fragile", "express", "insured"].map(String::from).into(),
    }
}

pub fn item(id: u32) -> Item {
    Item { id, name: format!("item number {id}"), price: f64::from(id) * 0.25 }
}
