//! Sample requests, and the types of their arguments.

use frpc_jsonrpc::generated::Arguments;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

/// The arguments of a function.
pub trait Params: DeserializeOwned {
    /// Parses the arguments one by one from their list or object, like `#[function]`.
    fn one_by_one(params: &str) -> Option<Self>;
}

/// Two numbers, by position.
#[derive(Debug, Deserialize)]
pub struct Numbers(pub i64, pub i64);

/// Strings, by name.
#[derive(Debug, Deserialize)]
pub struct Strings {
    /// A short string.
    pub title: String,
    /// A short string.
    pub author: String,
    /// A string for the remaining length, with an escape in each line.
    pub text: String,
}

/// A list of numbers, by position.
#[derive(Debug, Deserialize)]
pub struct Floats(pub (Vec<f64>,));

/// An array in base64, by position.
#[derive(Debug, Deserialize)]
pub struct Array(pub (Tensor,));

/// An array in the format of `frpc_jsonrpc::Tensor`, with its base64 not decoded.
#[derive(Debug, Deserialize)]
pub struct Tensor {
    /// The length of each dimension.
    pub shape: Vec<u64>,
    /// The type of the elements.
    pub dtype: String,
    /// The elements in base64.
    pub data: String,
}

impl Params for Numbers {
    fn one_by_one(params: &str) -> Option<Self> {
        let found = Arguments::read("f", &["a", "b"], Some(params), [None; 2]).ok()?;
        Some(Self(found.required(0).ok()?, found.required(1).ok()?))
    }
}

impl Params for Strings {
    fn one_by_one(params: &str) -> Option<Self> {
        let found = Arguments::read("f", &["title", "author", "text"], Some(params), [None; 3]).ok()?;
        let (title, author) = (found.required(0).ok()?, found.required(1).ok()?);
        Some(Self { title, author, text: found.required(2).ok()? })
    }
}

impl Params for Floats {
    fn one_by_one(params: &str) -> Option<Self> {
        let found = Arguments::read("f", &["values"], Some(params), [None; 1]).ok()?;
        Some(Self((found.required(0).ok()?,)))
    }
}

impl Params for Array {
    fn one_by_one(params: &str) -> Option<Self> {
        let found = Arguments::read("f", &["tensor"], Some(params), [None; 1]).ok()?;
        Some(Self((found.required(0).ok()?,)))
    }
}

/// A sample request, by the type of its arguments.
#[derive(Debug)]
pub enum Sample {
    /// A request with two numbers.
    Numbers(Vec<u8>),
    /// A request with strings that contain a few escapes.
    Strings(Vec<u8>),
    /// A request with a list of floating-point numbers.
    Floats(Vec<u8>),
    /// A request with an array in base64.
    Array(Vec<u8>),
}

/// Returns all sample requests, of about 100 bytes, 1 KiB and 10 KiB.
pub fn all() -> Vec<(String, Sample)> {
    let mut samples = vec![("numbers, 70 B".to_owned(), Sample::Numbers(numbers()))];
    for (size, len) in [("150 B", 150), ("1 KiB", 1024), ("10 KiB", 10 * 1024)] {
        samples.push((format!("strings, {size}"), Sample::Strings(strings(len))));
        samples.push((format!("floats, {size}"), Sample::Floats(floats(len))));
        samples.push((format!("array, {size}"), Sample::Array(array(len))));
    }
    samples
}

fn numbers() -> Vec<u8> {
    request("sum", &json!([1_234_567, -7_654_321]))
}

fn strings(len: usize) -> Vec<u8> {
    let line =
        "Ada said that she would be home by \"seven\" or eight, and nobody should wait for her in the caf\u{e9}.\n";
    let text: String = line.chars().cycle().take(len.saturating_sub(100) * 32 / 33).collect();
    request("publish", &json!({"title": "Home", "author": "Ada", "text": text}))
}

fn floats(len: usize) -> Vec<u8> {
    let values = (0_i32..).map(|i| f64::from(i * 7919 % 10_007) / 64.0);
    let values: Vec<f64> = values.take(len.saturating_sub(55) * 2 / 19).collect();
    request("mean", &json!([values]))
}

fn array(len: usize) -> Vec<u8> {
    let data = ('A'..='Z').chain('a'..='z').chain('0'..='9').cycle();
    let data: String = data.take(len.saturating_sub(110) / 4 * 4).collect();
    let shape = [data.len() / 4 * 3 / 4];
    request("scale", &json!([{"shape": shape, "dtype": "<f4", "data": data}]))
}

fn request(method: &str, params: &serde_json::Value) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":1234}}"#).into_bytes()
}
