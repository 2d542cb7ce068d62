//! EndpointSlices as the API server sends them, reduced to the fields for channels.

use std::{collections::BTreeMap, io};

use serde::Deserialize;

/// An object of a list or of a watch: an EndpointSlice, or a Status. Unknown fields are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ApiObject {
    pub(crate) metadata: ObjectMetadata,
    pub(crate) address_type: String,
    pub(crate) endpoints: Option<Vec<SliceEndpoint>>,
    pub(crate) ports: Option<Vec<SlicePort>>,
    /// Of a Status.
    pub(crate) code: u16,
    pub(crate) message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectMetadata {
    pub(crate) name: String,
    pub(crate) resource_version: String,
    /// Of a list with further pages.
    #[serde(rename = "continue")]
    pub(crate) continuation: String,
}

/// A page of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SliceList {
    pub(crate) metadata: ObjectMetadata,
    pub(crate) items: Option<Vec<ApiObject>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SliceEndpoint {
    pub(crate) addresses: Option<Vec<String>>,
    pub(crate) conditions: Option<EndpointConditions>,
    pub(crate) zone: Option<String>,
    pub(crate) hints: Option<EndpointHints>,
    pub(crate) target_ref: Option<ObjectReference>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointConditions {
    pub(crate) ready: Option<bool>,
    pub(crate) serving: Option<bool>,
    pub(crate) terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EndpointHints {
    pub(crate) for_zones: Option<Vec<ZoneHint>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ZoneHint {
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ObjectReference {
    pub(crate) uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SlicePort {
    pub(crate) name: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) protocol: Option<String>,
}

/// The slices of one Service, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceTable {
    slices: BTreeMap<String, ApiObject>,
    endpoints_len: usize,
}

impl SliceTable {
    /// Adds a slice, or replaces the one with its name.
    pub(crate) fn insert(&mut self, slice: ApiObject, slices_max: usize, endpoints_max: usize) -> io::Result<()> {
        self.remove(&slice.metadata.name);
        let len = self.endpoints_len + slice.endpoints_len();
        if len > endpoints_max || self.slices.len() >= slices_max {
            let text = format!(
                "the Service has more than {endpoints_max} endpoints or {slices_max} slices: raise endpoints_max or \
                 slices_max of ResolverSettings"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.endpoints_len = len;
        self.slices.insert(slice.metadata.name.clone(), slice);
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(slice) = self.slices.remove(name) {
            self.endpoints_len -= slice.endpoints_len();
        }
    }

    /// Returns the slices in the order of their names.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &ApiObject> {
        self.slices.values()
    }
}

impl ApiObject {
    fn endpoints_len(&self) -> usize {
        self.endpoints.as_ref().map_or(0, Vec::len)
    }
}

impl SliceEndpoint {
    /// Returns whether new calls may go to the endpoint. A missing condition counts as ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.conditions.and_then(|conditions| conditions.ready).unwrap_or(true)
    }

    /// Returns whether the endpoint terminates and still answers.
    pub(crate) fn is_serving_its_end(&self) -> bool {
        let conditions = self.conditions.unwrap_or_default();
        conditions.terminating == Some(true) && conditions.serving.unwrap_or(true)
    }

    /// Returns whether a hint names this zone, or `None` without hints.
    pub(crate) fn is_for(&self, zone: &str) -> Option<bool> {
        let zones = self.hints.as_ref()?.for_zones.as_ref().filter(|zones| !zones.is_empty())?;
        Some(zones.iter().any(|hint| hint.name == zone))
    }
}
