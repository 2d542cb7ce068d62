//! Descriptions of functions.

use serde_json::Value;

/// The description of a [`Function`](super::Function): its name, documentation, parameters, and result.
#[derive(Clone, Debug)]
pub struct Description {
    name: String,
    docs: String,
    parameters: Vec<Parameter>,
    result: Value,
    takes_context: bool,
}

/// A parameter of a [`Function`](super::Function).
#[derive(Clone, Debug)]
pub struct Parameter {
    name: String,
    schema: Value,
    is_required: bool,
}

impl Description {
    /// Describes a function without parameters that returns any value.
    pub fn new(name: impl Into<String>) -> Self {
        let (docs, parameters) = (String::new(), Vec::new());
        Self { name: name.into(), docs, parameters, result: Value::Bool(true), takes_context: false }
    }

    /// Sets the documentation of the function.
    #[must_use]
    pub fn with_docs(self, docs: impl Into<String>) -> Self {
        Self { docs: docs.into(), ..self }
    }

    /// Appends a parameter.
    #[must_use]
    pub fn with_parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// Sets the JSON Schema of the result.
    #[must_use]
    pub fn with_result(self, result: Value) -> Self {
        Self { result, ..self }
    }

    /// Declares that the function uses its [`Context`](super::Context).
    ///
    /// Only such a context is notified when the caller [gives up](super::Context::cancelled).
    #[must_use]
    pub fn with_context(self) -> Self {
        Self { takes_context: true, ..self }
    }

    /// Returns the name of the function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the documentation: for a Rust function, its doc comment.
    pub fn docs(&self) -> &str {
        &self.docs
    }

    /// Returns the parameters in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns the JSON Schema of the result.
    pub fn result(&self) -> &Value {
        &self.result
    }

    pub(crate) fn takes_context(&self) -> bool {
        self.takes_context
    }
}

impl Parameter {
    /// Describes a required parameter by its name and JSON Schema.
    pub fn required(name: impl Into<String>, schema: Value) -> Self {
        Self { name: name.into(), schema, is_required: true }
    }

    /// Describes an optional parameter by its name and JSON Schema.
    pub fn optional(name: impl Into<String>, schema: Value) -> Self {
        Self { name: name.into(), schema, is_required: false }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the JSON Schema of its values.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Returns `true` if every call has to pass this parameter.
    pub fn is_required(&self) -> bool {
        self.is_required
    }
}
