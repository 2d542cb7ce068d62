//! List, then watch, and again after failures.

use std::{io, time::Duration};

use frpc::{
    fleet::{Endpoints, Refresh},
    frisbee::Backoff,
};
use tokio::time::{sleep, sleep_until};
use tracing::debug;

use crate::{
    api::{ApiChange, ApiError, PAGE_LEN, SliceApi, SliceWatch},
    events::invalid,
    select::EndpointRules,
    settings::ResolverSettings,
    slices::{ApiObject, ObjectMetadata, SliceTable},
};

/// Follows the slices of a Service.
pub(crate) struct SliceWatcher {
    api: SliceApi,
    rules: EndpointRules,
    refresh: Refresh,
    slices_max: usize,
    endpoints_max: usize,
    table: SliceTable,
    /// The version after which changes are missing. `None` before the first list, and once the version is of no use.
    version: Option<String>,
    watch: Option<SliceWatch>,
    /// `true` once an event of the current watch has arrived.
    has_heard: bool,
    backoff: Backoff,
    /// The pause before the next request.
    pause: Option<Duration>,
    /// The last result, to report changes only.
    last: Option<Endpoints>,
}

impl SliceWatcher {
    pub(crate) fn new(api: SliceApi, rules: EndpointRules, settings: &ResolverSettings, refresh: Refresh) -> Self {
        let ResolverSettings { slices_max, endpoints_max, retry_pause, .. } = *settings;
        Self {
            api,
            rules,
            refresh,
            slices_max,
            endpoints_max,
            table: SliceTable::default(),
            version: None,
            watch: None,
            has_heard: false,
            backoff: Backoff::new(retry_pause),
            pause: None,
            last: None,
        }
    }

    /// Waits for another set of endpoints, or for an error.
    pub(crate) async fn next(&mut self) -> io::Result<Endpoints> {
        loop {
            if let Some(pause) = self.pause {
                sleep(pause).await;
                self.pause = None;
            }
            match self.step().await {
                Ok(()) => {}
                Err(ApiError::Gone) => {
                    debug!("the version of the slices is gone, listing them again");
                    self.list_again();
                    continue;
                }
                Err(ApiError::Refused(error)) => {
                    // The version may be the reason, so the next request lists.
                    self.list_again();
                    return Err(error);
                }
                Err(ApiError::Failed(error)) => {
                    self.watch = None;
                    self.fail();
                    return Err(error);
                }
            }
            match self.rules.select(&self.table) {
                Ok(found) if self.last.as_ref() == Some(&found) => {}
                Ok(found) => {
                    self.last = Some(found.clone());
                    return Ok(found);
                }
                Err(error) => {
                    // Not before the next change.
                    if self.last.replace(Endpoints::default()) != Some(Endpoints::default()) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn list_again(&mut self) {
        self.watch = None;
        self.version = None;
        self.fail();
    }

    fn fail(&mut self) {
        self.pause = Some(self.backoff.pause());
    }

    /// Makes one request, or waits for events of the watch.
    async fn step(&mut self) -> Result<(), ApiError> {
        let Some(version) = &self.version else { return self.list().await };
        let Some(watch) = &mut self.watch else {
            self.has_heard = false;
            self.watch = Some(self.api.watch(version).await?);
            return Ok(());
        };
        let since = watch.since;
        let refreshed = async {
            sleep_until(since + REFRESH_AFTER).await;
            self.refresh.requested().await;
        };
        let changes = tokio::select! {
            changes = watch.next_events() => changes?,
            () = refreshed => {
                // The connection to the API server may be lost as well, without notice.
                self.watch = None;
                return Ok(());
            }
        };
        let Some(changes) = changes else {
            self.end_watch(since.elapsed());
            return Ok(());
        };
        self.has_heard = true;
        self.backoff.reset();
        for change in changes {
            self.apply(change).inspect_err(|_| self.version = None)?;
        }
        Ok(())
    }

    /// Decides what follows the regular end of a watch.
    fn end_watch(&mut self, lasted: Duration) {
        self.watch = None;
        if !self.has_heard {
            // A server ends a watch with a bookmark. Without one, it may not know the version, after its data was restored
            // from a copy, and would be silent for ever.
            self.version = None;
        }
        if lasted < ENDED_EARLY {
            self.fail();
        }
    }

    async fn list(&mut self) -> Result<(), ApiError> {
        let mut table = SliceTable::default();
        let mut continuation = String::new();
        // Twice the expected number, because a server may send short pages.
        let pages_max = (2 * self.slices_max.div_ceil(PAGE_LEN)).max(PAGES_MIN);
        for _ in 0..pages_max {
            let page = self.api.list(&continuation).await?;
            for slice in page.items.unwrap_or_default() {
                // Only a slice with a name can be changed by later events.
                if !slice.metadata.name.is_empty() {
                    table.insert(slice, self.slices_max, self.endpoints_max)?;
                }
            }
            let ObjectMetadata { resource_version, continuation: next, .. } = page.metadata;
            if next.is_empty() {
                self.version = Some(checked_version(resource_version)?);
                self.table = table;
                return Ok(());
            }
            if next.len() > CONTINUATION_LEN_MAX {
                let why = format!("the continuation of the list is longer than {CONTINUATION_LEN_MAX} bytes");
                return Err(invalid(why).into());
            }
            continuation = next;
        }
        Err(invalid(format!("the list has more than {pages_max} pages")).into())
    }

    fn apply(&mut self, change: ApiChange) -> Result<(), ApiError> {
        let version = match change {
            ApiChange::Set(slice) => {
                let version = slice.metadata.resource_version.clone();
                self.table.insert(slice, self.slices_max, self.endpoints_max)?;
                version
            }
            ApiChange::Removed(ApiObject { metadata, .. }) => {
                self.table.remove(&metadata.name);
                metadata.resource_version
            }
            ApiChange::Bookmark(bookmark) => bookmark.metadata.resource_version,
        };
        self.version = Some(checked_version(version)?);
        Ok(())
    }
}

/// Returns a version that may be part of a URL. Versions have no other meaning to clients.
fn checked_version(version: String) -> io::Result<String> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match (1..=VERSION_LEN_MAX).contains(&version.len()) && version.bytes().all(is_valid) {
        true => Ok(version),
        false => Err(invalid("the version of the slices is not valid".to_owned())),
    }
}

/// The age of a watch after which a lost server of the channel starts another.
const REFRESH_AFTER: Duration = Duration::from_secs(10);
/// A watch that ends sooner is followed by a pause before the next request.
const ENDED_EARLY: Duration = Duration::from_secs(1);
const VERSION_LEN_MAX: usize = 128;
/// The allowed number of pages for a Service with few slices.
const PAGES_MIN: usize = 200;
/// The maximum length of the text with which the server continues a list. It becomes part of a URL.
const CONTINUATION_LEN_MAX: usize = 4 * 1024;
