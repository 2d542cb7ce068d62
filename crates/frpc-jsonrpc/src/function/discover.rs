//! Discovery of functions by clients.

use serde_json::{Value, json};

use super::{Called, Context, Description, Function, Functions};

/// The function `rpc.discover`. It returns an OpenRPC document.
pub(crate) struct DiscoverFunction {
    description: Description,
    document: String,
}

impl DiscoverFunction {
    /// The name of the function.
    pub(crate) const NAME: &str = "rpc.discover";

    /// Creates the document about `functions`.
    pub(crate) fn of(functions: &Functions) -> Self {
        let description = Description::new(Self::NAME).with_docs("Returns this document.");
        Self { description, document: functions.openrpc().to_string() }
    }
}

impl Function for DiscoverFunction {
    fn description(&self) -> &Description {
        &self.description
    }

    fn call(&self, _: Option<&str>, _: &Context, out: &mut Vec<u8>) -> Called {
        out.extend_from_slice(self.document.as_bytes());
        Called::Written
    }
}

impl Functions {
    /// Returns an [OpenRPC](https://spec.open-rpc.org) document about all functions, the result of `rpc.discover`.
    ///
    /// It contains their documentation and the JSON Schemas of their parameters and results.
    ///
    /// ```
    /// use frpc_jsonrpc::{Functions, function};
    ///
    /// /// Adds two numbers.
    /// #[function]
    /// fn sum(a: i64, b: i64) -> i64 {
    ///     a + b
    /// }
    ///
    /// let document = Functions::new().function(sum).openrpc();
    /// assert_eq!(document["methods"][0]["name"], "sum");
    /// assert_eq!(document["methods"][0]["params"][1]["schema"]["type"], "integer");
    /// ```
    pub fn openrpc(&self) -> Value {
        let methods: Vec<Value> = self.iter().map(|function| method(function.description())).collect();
        let (title, version) = self.title_and_version();
        json!({
            "openrpc": "1.3.2",
            "info": {"title": title, "version": version},
            "methods": methods,
        })
    }
}

fn method(function: &Description) -> Value {
    let parameters = function.parameters().iter().map(|parameter| {
        json!({"name": parameter.name(), "required": parameter.is_required(), "schema": parameter.schema()})
    });
    let mut method = json!({
        "name": function.name(),
        "paramStructure": "either",
        "params": parameters.collect::<Vec<_>>(),
        "result": {"name": "result", "schema": function.result()},
    });
    if let (Some(fields), Some(summary)) = (method.as_object_mut(), function.docs().lines().next()) {
        fields.insert("summary".to_owned(), summary.into());
        fields.insert("description".to_owned(), function.docs().into());
    }
    method
}
