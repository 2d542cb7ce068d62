//! Arrays of numbers as values.

use std::{borrow::Cow, fmt};

use bytemuck::Pod;
use bytes::Bytes;
use frpc::Status;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeStruct};
use serde_json::{Value, json};

use super::base64;
use crate::{protos, schema::Schema};

/// An array of numbers with any number of dimensions, in row-major order.
///
/// In JSON it is an object with the NumPy type string, the shape, and the bytes in base64:
///
/// ```
/// use frpc_jsonrpc::Tensor;
///
/// let tensor = Tensor::new([2, 2], vec![1.0_f32, 2.0, 3.0, 4.0])?;
/// let text = serde_json::to_string(&tensor)?;
/// assert_eq!(text, r#"{"dtype":"<f4","shape":[2,2],"data":"AACAPwAAAEAAAEBAAACAQA=="}"#);
/// assert_eq!(serde_json::from_str::<Tensor<f32>>(&text)?, tensor);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`protos::Tensor`] is the message with the same JSON, for services. Converting a received message copies the numbers
/// only if they are misaligned or in the byte order of another machine.
#[derive(Clone)]
pub struct Tensor<T> {
    shape: Vec<usize>,
    numbers: TensorStorage<T>,
}

#[derive(Clone)]
enum TensorStorage<T> {
    Owned(Vec<T>),
    /// Properly aligned bytes in native order.
    Shared(Bytes),
}

/// An element type of [`Tensor`].
pub trait Element: Pod + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed {
    /// The NumPy type string without the byte order.
    const NAME: &'static str;

    /// Returns the number with its bytes reversed.
    #[doc(hidden)]
    #[must_use]
    fn swapped(self) -> Self;
}

/// The reason for a failed conversion to a [`Tensor`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorError {
    /// The numbers have another type.
    Type {
        /// The requested type.
        expected: String,
        /// The actual type.
        found: String,
    },
    /// The number of elements does not match the shape.
    Shape {
        /// The length of each dimension.
        shape: Vec<usize>,
        /// The length of all elements in bytes.
        len: usize,
        /// The length of an element in bytes.
        element_len: usize,
    },
    /// The data is not base64.
    Base64,
}

impl<T: Element> Tensor<T> {
    /// Creates a tensor with the given shape.
    ///
    /// # Errors
    ///
    /// Returns [`TensorError::Shape`] if the number of elements does not match the shape.
    pub fn new(shape: impl Into<Vec<usize>>, numbers: Vec<T>) -> Result<Self, TensorError> {
        let shape = shape.into();
        check_len::<T>(&shape, size_of_val(&*numbers))?;
        Ok(Self { shape, numbers: TensorStorage::Owned(numbers) })
    }

    /// Returns the length of each dimension. It is empty for a single number.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the numbers in row-major order.
    pub fn as_slice(&self) -> &[T] {
        match &self.numbers {
            TensorStorage::Owned(numbers) => numbers,
            TensorStorage::Shared(bytes) => bytemuck::cast_slice(bytes),
        }
    }

    /// Returns the numbers in row-major order. Copies them if they share the memory of a message.
    pub fn into_vec(self) -> Vec<T> {
        match self.numbers {
            TensorStorage::Owned(numbers) => numbers,
            TensorStorage::Shared(bytes) => bytemuck::cast_slice(&bytes).to_vec(),
        }
    }

    /// Creates a tensor from bytes. Copies them only if they are misaligned or in foreign byte order.
    fn from_bytes(dtype: &str, shape: Vec<usize>, bytes: Bytes) -> Result<Self, TensorError> {
        let order = ByteOrder::of::<T>(dtype)?;
        check_len::<T>(&shape, bytes.len())?;
        let is_shared = order == ByteOrder::NATIVE && bytemuck::try_cast_slice::<u8, T>(&bytes).is_ok();
        let numbers = if is_shared {
            TensorStorage::Shared(bytes)
        } else {
            let mut numbers = vec![T::zeroed(); bytes.len() / size_of::<T>()];
            bytemuck::cast_slice_mut(&mut numbers).copy_from_slice(&bytes);
            TensorStorage::Owned(order.native(numbers))
        };
        Ok(Self { shape, numbers })
    }

    fn from_text(dtype: &str, shape: Vec<usize>, text: &str) -> Result<Self, TensorError> {
        let order = ByteOrder::of::<T>(dtype)?;
        let len = base64::decoded_len(text);
        check_len::<T>(&shape, len)?;
        let mut numbers = vec![T::zeroed(); len / size_of::<T>()];
        base64::decode_exactly(text, bytemuck::cast_slice_mut(&mut numbers)).ok_or(TensorError::Base64)?;
        Ok(Self { shape, numbers: TensorStorage::Owned(order.native(numbers)) })
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.as_slice())
    }
}

/// Checks that elements with a total length of `len` bytes fill the shape.
fn check_len<T>(shape: &[usize], len: usize) -> Result<(), TensorError> {
    let expected = shape.iter().try_fold(size_of::<T>(), |len, dimension| len.checked_mul(*dimension));
    if expected == Some(len) {
        return Ok(());
    }
    Err(TensorError::Shape { shape: shape.to_vec(), len, element_len: size_of::<T>() })
}

/// A byte order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    /// Returns the byte order of a NumPy type string such as `<f8`, if its type is `T`.
    fn of<T: Element>(dtype: &str) -> Result<Self, TensorError> {
        let (order, name) = match dtype.as_bytes().first() {
            Some(b'<') => (Self::Little, &dtype[1..]),
            Some(b'>') => (Self::Big, &dtype[1..]),
            Some(b'=' | b'|') => (Self::NATIVE, &dtype[1..]),
            _ => (Self::NATIVE, dtype),
        };
        let is_clear = size_of::<T>() == 1 || dtype.starts_with(['<', '>', '=']);
        if name != T::NAME || !is_clear {
            let found = dtype.chars().take(FOUND_LEN).collect();
            return Err(TensorError::Type { expected: dtype_of::<T>(), found });
        }
        Ok(order)
    }

    /// Converts numbers from this byte order to the native one.
    fn native<T: Element>(self, mut numbers: Vec<T>) -> Vec<T> {
        if self != Self::NATIVE {
            numbers.iter_mut().for_each(|number| *number = number.swapped());
        }
        numbers
    }
}

/// Returns the NumPy type string for `T` in native byte order.
fn dtype_of<T: Element>() -> String {
    let order = match (size_of::<T>(), ByteOrder::NATIVE) {
        (1, _) => '|',
        (_, ByteOrder::Little) => '<',
        (_, ByteOrder::Big) => '>',
    };
    format!("{order}{}", T::NAME)
}

/// The maximum number of characters of a wrong type string in an error.
const FOUND_LEN: usize = 20;

impl<T: Element> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor").field("dtype", &T::NAME).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<T: Element> PartialEq for Tensor<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.shape(), self.as_slice()) == (other.shape(), other.as_slice())
    }
}

/// Creates a one-dimensional tensor.
impl<T: Element> From<Vec<T>> for Tensor<T> {
    fn from(numbers: Vec<T>) -> Self {
        Self { shape: vec![numbers.len()], numbers: TensorStorage::Owned(numbers) }
    }
}

impl<T: Element> From<Tensor<T>> for protos::Tensor {
    fn from(tensor: Tensor<T>) -> Self {
        let data = match &tensor.numbers {
            TensorStorage::Owned(_) => Bytes::copy_from_slice(tensor.bytes()),
            TensorStorage::Shared(bytes) => bytes.clone(),
        };
        let shape = tensor.shape.iter().map(|len| u32::try_from(*len).unwrap_or(u32::MAX)).collect();
        Self { dtype: dtype_of::<T>(), shape, data }
    }
}

impl<T: Element> TryFrom<protos::Tensor> for Tensor<T> {
    type Error = TensorError;

    fn try_from(tensor: protos::Tensor) -> Result<Self, TensorError> {
        Self::from_bytes(&tensor.dtype, shape(&tensor.shape), tensor.data)
    }
}

fn shape(shape: &[u32]) -> Vec<usize> {
    shape.iter().map(|len| usize::try_from(*len).unwrap_or(usize::MAX)).collect()
}

impl<T: Element> Serialize for Tensor<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Tensor", 3)?;
        object.serialize_field("dtype", &dtype_of::<T>())?;
        object.serialize_field("shape", &self.shape)?;
        object.serialize_field("data", &Base64Text(self.bytes()))?;
        object.end()
    }
}

/// Bytes serialized as base64.
pub(super) struct Base64Text<'a>(pub(super) &'a [u8]);

impl Serialize for Base64Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&base64::encoded(self.0))
    }
}

/// The JSON of a tensor. Empty fields may be missing, because protobuf JSON omits them.
#[derive(Deserialize)]
struct TensorJson<'a> {
    #[serde(borrow, default)]
    dtype: Cow<'a, str>,
    #[serde(default)]
    shape: Vec<u32>,
    #[serde(borrow, default)]
    data: Cow<'a, str>,
}

impl<'de, T: Element> Deserialize<'de> for Tensor<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let TensorJson { dtype, shape: lengths, data } = TensorJson::deserialize(deserializer)?;
        Self::from_text(&dtype, shape(&lengths), &data).map_err(de::Error::custom)
    }
}

impl<T: Element> Schema for Tensor<T> {
    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "dtype": {"const": dtype_of::<T>()},
                "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "data": {"type": "string", "contentEncoding": "base64"},
            },
            "required": ["dtype", "shape", "data"],
        })
    }
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type { expected, found } => write!(f, "expected a tensor of {expected}, found one of `{found}`"),
            Self::Shape { shape, len, element_len } => {
                write!(
                    f,
                    "{len} bytes do not fill a tensor of shape {shape:?} with {element_len} bytes for each number"
                )
            }
            Self::Base64 => f.write_str("the data of the tensor is not valid base64"),
        }
    }
}

impl std::error::Error for TensorError {}

/// Converts to [`Code::InvalidArgument`](frpc::Code::InvalidArgument).
impl From<TensorError> for Status {
    fn from(error: TensorError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty: $name:literal, |$number:ident| $swapped:expr;)*) => {$(
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const NAME: &'static str = $name;

            fn swapped(self) -> Self {
                let $number = self;
                $swapped
            }
        }
    )*};
}

elements! {
    i8: "i1", |number| number;
    i16: "i2", |number| number.swap_bytes();
    i32: "i4", |number| number.swap_bytes();
    i64: "i8", |number| number.swap_bytes();
    u8: "u1", |number| number;
    u16: "u2", |number| number.swap_bytes();
    u32: "u4", |number| number.swap_bytes();
    u64: "u8", |number| number.swap_bytes();
    f32: "f4", |number| Self::from_bits(number.to_bits().swap_bytes());
    f64: "f8", |number| Self::from_bits(number.to_bits().swap_bytes());
}

#[cfg(test)]
mod tests {
    use frpc::codec::json;

    use super::*;

    fn read(text: &str) -> Result<Tensor<i16>, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_protobuf_message_has_the_same_json() {
        for (shape, numbers) in [(vec![2, 2], vec![1_i16, -2, 3, -4]), (vec![], vec![7]), (vec![0, 3], vec![])] {
            let tensor = Tensor::new(shape, numbers).unwrap();
            let message = protos::Tensor::from(tensor.clone());
            let text = serde_json::to_string(&tensor).unwrap();
            assert_eq!(json::from_str::<protos::Tensor>(&text).unwrap(), message, "{text}");
            assert_eq!(read(&json::to_string(&message).unwrap()).unwrap(), tensor);
            assert_eq!(Tensor::try_from(message).as_ref(), Ok(&tensor));
        }
    }

    #[test]
    fn byte_order_is_converted() {
        let expected = Tensor::from(vec![1_i16, -2]);
        assert_eq!(read(r#"{"dtype":"<i2","shape":[2],"data":"AQD+/w=="}"#).as_ref(), Ok(&expected));
        assert_eq!(read(r#"{"dtype":">i2","shape":[2],"data":"AAH//g"}"#).as_ref(), Ok(&expected));
        assert_eq!(read(r#"{"dtype":"<i2","shape":[2],"data":"AQD-_w"}"#).as_ref(), Ok(&expected));
    }

    #[test]
    fn invalid_tensors_are_rejected_before_allocation() {
        let table = [
            (r#"{"dtype":"<i4","shape":[1],"data":"AQA="}"#, "expected a tensor of <i2, found one of `<i4`"),
            (r#"{"dtype":"i2","shape":[1],"data":"AQA="}"#, "expected a tensor of <i2, found one of `i2`"),
            (r#"{"shape":[1],"data":"AQA="}"#, "expected a tensor of <i2, found one of ``"),
            (
                r#"{"dtype":"<i2","shape":[4294967295,4294967295,4294967295],"data":"AQA="}"#,
                "2 bytes do not fill a tensor of shape [4294967295, 4294967295, 4294967295] with 2 bytes for each number",
            ),
            (
                r#"{"dtype":"<i2","shape":[2],"data":"AQA="}"#,
                "2 bytes do not fill a tensor of shape [2] with 2 bytes for each number",
            ),
            (r#"{"dtype":"<i2","shape":[1],"data":"A!A="}"#, "the data of the tensor is not valid base64"),
        ];
        for (text, expected) in table {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        for text in [r#"{"dtype":"<i2","shape":[-1],"data":""}"#, r#"{"dtype":7}"#, "[]", "7"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn aligned_bytes_are_shared_and_others_copied() {
        let numbers: Vec<u64> = (0..9).collect();
        let bytes = Bytes::from(bytemuck::cast_slice::<u64, u8>(&numbers).to_vec());
        let skew = bytes.as_ptr().align_offset(align_of::<u64>());
        for start in [0, 1, 2, 4, 8] {
            let data = bytes.slice(start..start + 64);
            let lies_well = (start + 8 - skew % 8) % 8 == 0;
            let message = protos::Tensor { dtype: "<u8".to_owned(), shape: vec![8], data: data.clone() };
            let tensor = Tensor::<u64>::try_from(message).unwrap();
            let is_shared = tensor.as_slice().as_ptr().cast::<u8>() == data.as_ptr();
            assert_eq!(is_shared, lies_well && cfg!(target_endian = "little"), "{start}");
            assert_eq!(bytemuck::cast_slice::<u64, u8>(&tensor.into_vec()), &data[..]);
        }
    }
}
