//! The facts about a function, for those who do not call it.

use serde_json::Value;

/// The facts about a [`Function`](super::Function): its name, its parameters, its result.
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
    /// Describes a function of this name, which takes no parameters and returns anything.
    pub fn new(name: impl Into<String>) -> Self {
        let (docs, parameters) = (String::new(), Vec::new());
        Self { name: name.into(), docs, parameters, result: Value::Bool(true), takes_context: false }
    }

    /// Says for people what the function does.
    #[must_use]
    pub fn with_docs(self, docs: impl Into<String>) -> Self {
        Self { docs: docs.into(), ..self }
    }

    /// Adds a parameter behind those that are there.
    #[must_use]
    pub fn with_parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// Says what the function returns, in JSON Schema.
    #[must_use]
    pub fn with_result(self, result: Value) -> Self {
        Self { result, ..self }
    }

    /// Says that the function asks for its [`Context`](super::Context), which then hears of callers that
    /// [give up](super::Context::cancelled).
    #[must_use]
    pub fn with_context(self) -> Self {
        Self { takes_context: true, ..self }
    }

    /// Returns the name by which the function is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the function does, for people: the comment on it in Rust.
    pub fn docs(&self) -> &str {
        &self.docs
    }

    /// Returns the parameters in their order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns what the function returns, in JSON Schema.
    pub fn result(&self) -> &Value {
        &self.result
    }

    pub(crate) fn takes_context(&self) -> bool {
        self.takes_context
    }
}

impl Parameter {
    /// Describes a parameter that every call has to give, by its name and in JSON Schema.
    pub fn required(name: impl Into<String>, schema: Value) -> Self {
        Self { name: name.into(), schema, is_required: true }
    }

    /// Describes a parameter that calls may leave out.
    pub fn optional(name: impl Into<String>, schema: Value) -> Self {
        Self { name: name.into(), schema, is_required: false }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the values that it can have, in JSON Schema.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Returns whether every call has to give it.
    pub fn is_required(&self) -> bool {
        self.is_required
    }
}
