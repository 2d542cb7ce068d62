//! Proto files with the declarations of annotations.

/// The files of `google/api` that declare REST annotations, with their text, for compilers without an include directory
/// of googleapis: `annotations.proto`, `http.proto` and `httpbody.proto`.
pub const GOOGLE_API_FILES: [(&str, &str); 3] = [
    ("google/api/annotations.proto", include_str!("../proto/google/api/annotations.proto")),
    ("google/api/http.proto", include_str!("../proto/google/api/http.proto")),
    ("google/api/httpbody.proto", include_str!("../proto/google/api/httpbody.proto")),
];
