//! The descriptors in generated code, with the options that the types of prost drop.

use std::collections::HashSet;

use frpc_schema::descriptors_of;
use prost_types::FileDescriptorSet;
use protox::prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};

/// Returns the encoded descriptors of a package's files and their imports, without source information.
///
/// `encoded` is the encoded set with all options.
pub(crate) fn of(package: &str, set: &FileDescriptorSet, encoded: &[u8]) -> Vec<u8> {
    let wanted = descriptors_of(package, set).file;
    let wanted: HashSet<_> = wanted.iter().map(|file| file.name()).collect();
    let files = fields(encoded).filter(|(number, _)| *number == FILE_OF_SET).filter_map(|(_, field)| content(field));
    let mut out = Vec::new();
    for (file, declared) in files.zip(&set.file) {
        if !wanted.contains(declared.name()) {
            continue;
        }
        let kept = || fields(file).filter(|(number, _)| *number != SOURCE_OF_FILE).map(|(_, field)| field);
        encode_key(FILE_OF_SET, WireType::LengthDelimited, &mut out);
        encode_varint(kept().map(|field| field.len() as u64).sum(), &mut out);
        kept().for_each(|field| out.extend(field));
    }
    out
}

/// Returns the fields of an encoded message: their numbers, and their bytes with the key. Decoding has checked the
/// bytes before.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let start = rest;
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        skip_field(wire_type, number, &mut rest, DecodeContext::default()).ok()?;
        Some((number, &start[..start.len() - rest.len()]))
    })
}

/// Returns the content of a field with a length.
fn content(mut field: &[u8]) -> Option<&[u8]> {
    let (_, wire_type) = decode_key(&mut field).ok()?;
    decode_varint(&mut field).ok()?;
    (wire_type == WireType::LengthDelimited).then_some(field)
}

const FILE_OF_SET: u32 = 1;
const SOURCE_OF_FILE: u32 = 9;
