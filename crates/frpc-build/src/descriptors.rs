//! The descriptors in generated code, with the options that the types of prost drop.

use std::collections::{HashMap, HashSet};

use frpc_schema::descriptors_of;
use prost_types::{FileDescriptorProto, FileDescriptorSet, source_code_info::Location};
use protox::prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field},
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

/// Returns encoded descriptors without the imports that the resolver added. `parsed` holds the files as written.
pub(crate) fn as_written(encoded: Vec<u8>, parsed: &[FileDescriptorProto]) -> Result<Vec<u8>, DecodeError> {
    let set = FileDescriptorSet::decode(&*encoded)?;
    let parsed: HashMap<_, _> = parsed.iter().map(|file| (file.name(), file)).collect();
    let written = |file: &FileDescriptorProto| {
        parsed.get(file.name()).copied().filter(|parsed| parsed.dependency.len() < file.dependency.len())
    };
    if !set.file.iter().any(|file| written(file).is_some()) {
        return Ok(encoded);
    }
    let mut out = Vec::new();
    for ((_, field), file) in fields(&encoded).filter(|(number, _)| *number == FILE_OF_SET).zip(&set.file) {
        match (written(file), content(field)) {
            (Some(written), Some(content)) => {
                encode_bytes(FILE_OF_SET, &without_added_imports(content, file, written), &mut out);
            }
            _ => out.extend(field),
        }
    }
    Ok(out)
}

fn without_added_imports(encoded: &[u8], file: &FileDescriptorProto, written: &FileDescriptorProto) -> Vec<u8> {
    let added = written.dependency.len();
    let mut out = Vec::new();
    let mut imports = 0;
    for (number, field) in fields(encoded) {
        match (number, &file.source_code_info) {
            (DEPENDENCY_OF_FILE, _) => {
                imports += 1;
                if imports <= added {
                    out.extend(field);
                }
            }
            (SOURCE_OF_FILE, Some(info)) => {
                let mut info = info.clone();
                info.location.retain(|location| !is_added(&location.path, added));
                let whole_file = |location: &&mut Location| location.path.is_empty();
                if let Some(location) = info.location.iter_mut().find(whole_file) {
                    location.span = whole_span(written);
                }
                encode_bytes(SOURCE_OF_FILE, &info.encode_to_vec(), &mut out);
            }
            _ => out.extend(field),
        }
    }
    out
}

/// Returns the span of a whole file.
fn whole_span(file: &FileDescriptorProto) -> Vec<i32> {
    let mut locations = file.source_code_info.iter().flat_map(|info| &info.location);
    locations.find(|location| location.path.is_empty()).map(|location| location.span.clone()).unwrap_or_default()
}

/// Returns `true` for the path of an import from index `added` on.
fn is_added(path: &[i32], added: usize) -> bool {
    let dependency = i32::try_from(DEPENDENCY_OF_FILE);
    matches!(path, &[field, index] if Ok(field) == dependency && usize::try_from(index).is_ok_and(|index| index >= added))
}

fn encode_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend(bytes);
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
const DEPENDENCY_OF_FILE: u32 = 3;
const SOURCE_OF_FILE: u32 = 9;
