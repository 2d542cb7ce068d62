//! The syntax of files with an edition, before and after their features are resolved.

/// Returns `true` for the syntax of files with an edition and resolved features.
pub fn is_resolved_edition(syntax: &str) -> bool {
    syntax.starts_with(RESOLVED)
}

/// The syntax of files with an edition, as written by compilers.
pub(crate) const UNRESOLVED: &str = "editions";
/// The beginning of the syntax after the features are resolved.
pub(crate) const RESOLVED: &str = "edition ";
