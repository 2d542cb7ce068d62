//! Descriptors of files rewritten by [`EditionText`]: they become descriptors of their edition again.

use frpc_schema::{Diagnostic, FileEdition, location::SourceLocation, with_editions};
use prost_types::{FileDescriptorSet, SourceCodeInfo};

use crate::{edition_text::EditionText, sources::IncludeDirs};

/// Returns encoded descriptors with the editions of their files. `set` has the same files.
pub(crate) fn restored(set: &FileDescriptorSet, encoded: Vec<u8>, sources: &IncludeDirs) -> Vec<u8> {
    let editions = set.file.iter().map(|file| {
        let edition = sources.edition(file.name())?;
        let mut source_code_info = file.source_code_info.clone();
        convert(&edition, source_code_info.as_mut());
        Some(FileEdition::new(&edition.edition, source_code_info))
    });
    let editions: Vec<_> = editions.collect();
    if editions.iter().all(Option::is_none) { encoded } else { with_editions(&encoded, editions) }
}

/// Converts all locations of a file to the text as written.
pub(crate) fn convert(edition: &EditionText, info: Option<&mut SourceCodeInfo>) {
    for location in info.into_iter().flat_map(|info| &mut info.location) {
        edition.convert(&mut location.span);
    }
}

/// Returns the statements of proto2 in files of an edition.
pub(crate) fn mistakes(set: &FileDescriptorSet, sources: &IncludeDirs) -> Vec<Diagnostic> {
    let files = set.file.iter().filter_map(|file| Some((file.name(), sources.edition(file.name())?)));
    let mistakes = files.flat_map(|(name, edition)| {
        edition.mistakes.into_iter().map(move |mistake| {
            let place = SourceLocation::new(name, Some(mistake.span));
            Diagnostic::new(mistake.message).at(place).help(mistake.help)
        })
    });
    mistakes.collect()
}
