//! Values for arrays and pictures.

mod base64;
mod image;
#[cfg(feature = "ndarray")]
mod ndarray;
mod tensor;

pub use self::{
    image::Image,
    tensor::{Element, Tensor, TensorError},
};
