//! Paths of fields with the type of their message.

use std::{borrow::Cow, marker::PhantomData};

use prost_types::FieldMask;

/// The path of a field in the message `M`. `T` is the type of the field if it is a single message.
///
/// The generated module `paths` contains one constant per field.
#[derive(Debug)]
pub struct FieldPath<M, T = ()> {
    path: Cow<'static, str>,
    types: PhantomData<fn(M) -> T>,
}

impl<M, T> FieldPath<M, T> {
    /// Creates the path of a field, for generated code.
    pub const fn new(path: &'static str) -> Self {
        Self { path: Cow::Borrowed(path), types: PhantomData }
    }

    /// Returns the path of a field inside this one.
    pub fn then<U>(self, inner: FieldPath<T, U>) -> FieldPath<M, U> {
        FieldPath { path: Cow::Owned(format!("{}.{}", self.path, inner.path)), types: PhantomData }
    }

    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        &self.path
    }
}

impl<M, T> Clone for FieldPath<M, T> {
    fn clone(&self) -> Self {
        Self { path: self.path.clone(), types: PhantomData }
    }
}

/// Paths of a message, to make a mask of them.
#[derive(Debug)]
pub struct PathSet<M> {
    paths: Vec<String>,
    message: PhantomData<fn(M)>,
}

impl<M> PathSet<M> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self { paths: Vec::new(), message: PhantomData }
    }

    /// Adds a path.
    pub fn with<T>(mut self, path: FieldPath<M, T>) -> Self {
        self.paths.push(path.path.into_owned());
        self
    }

    /// Returns the mask with these paths, in the order of their addition.
    pub fn into_mask(self) -> FieldMask {
        FieldMask { paths: self.paths }
    }
}

impl<M> Default for PathSet<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> From<PathSet<M>> for FieldMask {
    fn from(paths: PathSet<M>) -> Self {
        paths.into_mask()
    }
}
