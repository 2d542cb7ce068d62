//! The JSON mapping of proto3, for messages that frisbee-rpc-build generated with `.json(true)`.
//!
//! ```
//! # mod fields {
//! #     use frpc::codec::json::{Field, Message, Reader, Result, Writer};
//! #     #[derive(Debug, Default, PartialEq)]
//! #     pub struct Words { pub text: String, pub times: u64 }
//! #     impl Message for Words {
//! #         const NAME: &'static str = "echo.Words";
//! #         fn encode_json(&self, out: &mut Writer) {
//! #             out.begin();
//! #             out.string("text", &self.text);
//! #             out.u64("times", self.times);
//! #             out.end();
//! #         }
//! #         fn decode_json(&mut self, input: &mut Reader<'_>) -> Result<()> {
//! #             input.object(&[Field::new("text", "text"), Field::new("times", "times")], &mut |field, input| match field {
//! #                 0 => input.string(&mut self.text),
//! #                 _ => input.u64(&mut self.times),
//! #             })
//! #         }
//! #     }
//! # }
//! # use fields::Words;
//! use frpc::codec::json;
//!
//! let words = Words { text: "hello".to_owned(), times: 2 };
//! let text = json::to_string(&words)?;
//! assert_eq!(text, r#"{"text":"hello","times":"2"}"#);
//! assert_eq!(json::from_str::<Words>(&text)?, words);
//!
//! let error = json::from_str::<Words>(r#"{"times": -1}"#).unwrap_err();
//! assert_eq!(error.to_string(), "echo.Words.times: out of the range of a u64 (at byte 12)");
//! # Ok::<(), json::Error>(())
//! ```
//!
//! Fields are written in lower camel case or with their `json_name`. Parsing also accepts their names in the proto
//! file. Fields without presence are omitted if they have the default value.
//!
//! Unknown fields and unknown enum names are ignored, except by [`from_str_strict`]. A wire can
//! [reject](crate::Head::set_strict_json) them in requests. A duplicate field, map key or oneof member is an error.
//!
//! # Any
//!
//! An `Any` can contain the well-known types, the messages of the package of its field, and the messages of packages
//! used there. For messages of another package, pass its [`Types`], the result of its generated function `json_types`:
//! to [`MessageSettings::any_types`](crate::MessageSettings::any_types) and
//! [`Channel::with_any_types`](crate::Channel::with_any_types) for calls, or to [`to_string_with`] and
//! [`from_str_with`].

mod any;
mod any_types;
mod error;
mod fields;
mod members;
mod message;
mod reader;
mod scalar;
mod time;
mod tree;
mod types;
mod well_known;
mod writer;

pub(super) use self::{any::read, fields::SeenFields};
pub use self::{
    any::{
        from_slice, from_slice_with, from_str, from_str_strict, from_str_with, to_string, to_string_with, to_vec,
        to_vec_with,
    },
    error::{Error, ErrorKind, Result},
    fields::Field,
    message::{Enumeration, Message},
    reader::{Next, Reader},
    scalar::Key,
    tree::tree_memory_len,
    types::{Type, Types},
    writer::Writer,
};
