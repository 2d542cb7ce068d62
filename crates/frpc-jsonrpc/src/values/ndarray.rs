//! Conversions between tensors and `ndarray` arrays.

use ndarray::{Array, ArrayD, ArrayViewD, Dimension, IxDyn};

use super::{Element, Tensor};

impl<T: Element> Tensor<T> {
    /// Returns a view of the numbers as an array, without copying them.
    pub fn view(&self) -> ArrayViewD<'_, T> {
        ArrayViewD::from_shape(IxDyn(self.shape()), self.as_slice()).expect("the numbers fill the shape")
    }
}

/// Copies the numbers only if they are not in standard layout.
impl<T: Element, D: Dimension> From<Array<T, D>> for Tensor<T> {
    fn from(array: Array<T, D>) -> Self {
        let shape = array.shape().to_vec();
        let numbers = if array.is_standard_layout() {
            let (mut numbers, offset) = array.into_raw_vec_and_offset();
            numbers.drain(..offset.unwrap_or(0));
            numbers.truncate(shape.iter().product());
            numbers
        } else {
            array.iter().copied().collect()
        };
        Self::new(shape, numbers).expect("an array fills its shape")
    }
}

impl<T: Element> From<Tensor<T>> for ArrayD<T> {
    fn from(tensor: Tensor<T>) -> Self {
        let shape = IxDyn(tensor.shape());
        Self::from_shape_vec(shape, tensor.into_vec()).expect("the numbers fill the shape")
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Axis, array};

    use super::*;

    #[test]
    fn arrays_convert_in_both_directions() {
        let array = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let tensor = Tensor::from(array.clone());
        assert_eq!((tensor.shape(), tensor.as_slice()), (&[2, 3][..], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]));
        assert_eq!(tensor.view(), array.view().into_dyn());
        assert_eq!(ArrayD::from(tensor), array.clone().into_dyn());
        let turned = Tensor::from(array.clone().reversed_axes());
        assert_eq!((turned.shape(), turned.as_slice()), (&[3, 2][..], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0][..]));
        let mut part = array;
        part.slice_axis_inplace(Axis(0), (1..).into());
        let part = Tensor::from(part);
        assert_eq!((part.shape(), part.as_slice()), (&[1, 3][..], &[4.0, 5.0, 6.0][..]));
    }
}
