//! Selection of descriptors by package.

use std::collections::{HashMap, HashSet};

use prost::{
    Message,
    encoding::{DecodeContext, decode_key, skip_field},
};
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Returns the files of a package and all their imports, as needed for server reflection. Keeps the order of the set
/// and drops source information.
pub fn descriptors_of(package: &str, set: &FileDescriptorSet) -> FileDescriptorSet {
    let by_name: HashMap<_, _> = set.file.iter().map(|file| (file.name(), file)).collect();
    let mut left: Vec<_> = set.file.iter().filter(|file| file.package() == package).map(|file| file.name()).collect();
    let mut wanted = HashSet::new();
    while let Some(name) = left.pop() {
        if wanted.insert(name) {
            left.extend(by_name.get(name).iter().flat_map(|file| &file.dependency).map(String::as_str));
        }
    }
    let files = set.file.iter().filter(|file| wanted.contains(file.name()));
    let files = files.map(|file| FileDescriptorProto { source_code_info: None, ..file.clone() });
    FileDescriptorSet { file: files.collect() }
}

/// A `google.protobuf.FileDescriptorSet` whose files stay encoded.
///
/// The types of prost drop custom options, editions and features. An encoded file keeps them.
#[derive(Clone, PartialEq, Message)]
pub struct EncodedFiles {
    /// The files, in the order of the set.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub file: Vec<Vec<u8>>,
}

/// Returns an encoded file without the fields of these numbers.
pub(crate) fn without_fields(file: &[u8], numbers: &[u32]) -> Vec<u8> {
    let (mut left, mut kept) = (file, Vec::with_capacity(file.len()));
    while !left.is_empty() {
        let field = left;
        let Ok((number, wire_type)) = decode_key(&mut left) else { break };
        if skip_field(wire_type, number, &mut left, DecodeContext::default()).is_err() {
            break;
        }
        if !numbers.contains(&number) {
            kept.extend_from_slice(&field[..field.len() - left.len()]);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_includes_all_its_imports() {
        let set = FileDescriptorSet {
            file: vec![
                file("base.proto", "base", &[]),
                file("other.proto", "other", &["base.proto"]),
                file("item.proto", "shop", &["base.proto"]),
                file("order.proto", "order", &["item.proto", "missing.proto"]),
                file("late.proto", "shop", &[]),
            ],
        };
        let names = |package| {
            let files = descriptors_of(package, &set).file;
            files.into_iter().map(|file| file.name.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names("base"), ["base.proto"]);
        assert_eq!(names("shop"), ["base.proto", "item.proto", "late.proto"]);
        assert_eq!(names("order"), ["base.proto", "item.proto", "order.proto"]);
        assert_eq!(names("nothing"), [""; 0]);
    }

    #[test]
    fn cyclic_imports_are_included_once() {
        let set =
            FileDescriptorSet { file: vec![file("a.proto", "a", &["b.proto"]), file("b.proto", "b", &["a.proto"])] };
        assert_eq!(descriptors_of("a", &set).file.len(), 2);
    }

    #[test]
    fn comments_are_removed() {
        let mut set = FileDescriptorSet { file: vec![file("a.proto", "a", &[])] };
        let expected = set.clone();
        set.file[0].source_code_info = Some(Default::default());
        assert_eq!(descriptors_of("a", &set), expected);
    }

    fn file(name: &str, package: &str, imports: &[&str]) -> FileDescriptorProto {
        FileDescriptorProto {
            name: Some(name.to_owned()),
            package: Some(package.to_owned()),
            dependency: imports.iter().map(|&import| import.to_owned()).collect(),
            ..FileDescriptorProto::default()
        }
    }
}
