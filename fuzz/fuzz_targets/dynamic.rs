//! Messages known by their descriptors only. Any bytes are read as generated code reads them, and any descriptors are
//! refused or describe messages that can be read.
#![no_main]

use std::{fmt::Debug, sync::LazyLock};

use arbitrary::Arbitrary;
use bytes::Bytes;
use frisbee_fuzz::fuzz_target;
use frpc::{
    codec::{self, DecodedContent, MemoryBudget, Message},
    prost::{self, Message as _},
    prost_types::FileDescriptorSet,
};
use frpc_dynamic::{DynamicSchema, SchemaLayouts, SchemaOptions};
use prost_reflect::{DescriptorPool, DynamicMessage};

#[allow(dead_code, reason = "more is generated than is used here")]
mod vectors {
    frpc::include_proto!("vectors");
}

/// Messages with gaps between field numbers, all kinds of nesting, and hundreds of fields.
#[allow(dead_code, clippy::large_enum_variant, reason = "as above")]
mod hostile {
    frpc::include_proto!("codec.hostile");
}

/// Messages with every kind of field, and the well-known types.
#[allow(dead_code, reason = "as above")]
mod shapes {
    frpc::include_proto!("names.shapes");
}

use hostile::{Nest, Rows};
use shapes::{Choices, Lists, Maps, Optionals, WellKnown};
use vectors::{Choice, Enums, MapKeys, Ordering, Repeated, Scalars, Tree};

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Message(&'a [u8]),
    Descriptors(&'a [u8]),
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Message(bytes) => {
        let bytes = Bytes::copy_from_slice(bytes);
        agree::<Scalars>(&bytes, &VECTORS);
        agree::<Enums>(&bytes, &VECTORS);
        agree::<Choice>(&bytes, &VECTORS);
        agree::<MapKeys>(&bytes, &VECTORS);
        agree::<Ordering>(&bytes, &VECTORS);
        agree::<Repeated>(&bytes, &VECTORS);
        agree::<Tree>(&bytes, &VECTORS);
        agree::<Nest>(&bytes, &HOSTILE);
        agree::<Rows>(&bytes, &HOSTILE);
        agree::<Choices>(&bytes, &SHAPES);
        agree::<Lists>(&bytes, &SHAPES);
        agree::<Maps>(&bytes, &SHAPES);
        agree::<Optionals>(&bytes, &SHAPES);
        agree::<WellKnown>(&bytes, &SHAPES);
    }
    Input::Descriptors(bytes) => read_descriptors(bytes),
});

/// The declarations of a package.
struct Package {
    layouts: SchemaLayouts,
    pool: DescriptorPool,
}

static VECTORS: LazyLock<Package> = LazyLock::new(|| Package::new(vectors::FILE_DESCRIPTOR_SET));
static HOSTILE: LazyLock<Package> = LazyLock::new(|| Package::new(hostile::FILE_DESCRIPTOR_SET));
static SHAPES: LazyLock<Package> = LazyLock::new(|| Package::new(shapes::FILE_DESCRIPTOR_SET));

impl Package {
    fn new(descriptors: &[u8]) -> Self {
        let files = FileDescriptorSet::decode(descriptors).expect("they were written by a compiler");
        let layouts = SchemaLayouts::read(&files, &SchemaOptions::default()).expect("they were compiled");
        Self { layouts, pool: DescriptorPool::decode(descriptors).expect("they were compiled") }
    }
}

/// Checks that both codecs read the same message, or refuse the bytes at the same position for the same reason.
fn agree<M: Message + prost::Message + Default + PartialEq + Debug>(bytes: &Bytes, package: &Package) {
    let Package { layouts, pool } = package;
    let name = <M as Message>::NAME;
    let shape = pool.all_messages().find(|shape| shape.full_name().ends_with(name)).expect("it is declared");
    match (codec::decode::<M>(bytes), layouts.decode(&shape, bytes, MemoryBudget::default())) {
        (Ok(DecodedContent::Message(expected)), Ok(DecodedContent::Message(read))) => {
            let converted = M::decode(&read.encode_to_vec()[..]).expect("it was just written");
            // A message with a NaN does not equal itself.
            #[expect(clippy::eq_op, reason = "see above")]
            let is_itself = expected == expected;
            assert!(converted == expected || !is_itself, "{converted:?}\n{expected:?}");
            let written = layouts.encode(&read);
            assert_eq!(written.len(), codec::encode(&expected).len(), "{expected:?}");
        }
        (Ok(DecodedContent::Error(expected)), Ok(DecodedContent::Error(read))) => assert_eq!(read, expected),
        (Err(expected), Err(error)) => assert_eq!(error, expected),
        (expected, read) => panic!("{expected:?}, and not {read:?}"),
    }
}

/// Reads descriptors as the command `frpc` reads those of a server, and a message of each of their types.
fn read_descriptors(bytes: &[u8]) {
    let mut schema = DynamicSchema::new();
    if schema.add_set(bytes).is_err() {
        return;
    }
    let files = FileDescriptorSet { file: schema.pool().file_descriptor_protos().cloned().collect() };
    let Ok(layouts) = SchemaLayouts::read(&files, &SchemaOptions::default()) else { return };
    let is_known = |name: &str| DescriptorPool::global().get_message_by_name(name).is_some();
    for shape in schema.pool().all_messages().filter(|shape| !shape.is_map_entry() && !is_known(shape.full_name())) {
        let written = layouts.encode(&DynamicMessage::new(shape.clone()));
        let read = layouts.decode(&shape, &written, MemoryBudget::default());
        assert!(matches!(read, Ok(DecodedContent::Message(_))), "{}: {read:?}", shape.full_name());
    }
}
