//! The service `frpc.admin.v1.Admin`.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use frpc::{Answer, Call, Method, Request, Response, Service, Status, Streaming, inspect};
use futures_util::stream;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Interval, MissedTickBehavior, interval},
};

use crate::{
    AdminAccess, AdminPage, Channelz, process,
    protos::frpc::admin::v1::{
        ProcessState, SetLogFilterRequest, SetLogFilterResponse, WatchRequest,
        admin_server::{self, AdminServer},
    },
    sampler::Sampler,
};

/// The service `frpc.admin.v1.Admin`, with the state of the whole process. Cheap to clone.
///
/// Creating it starts the [recording](frpc::inspect::start_recording) of streams, failed calls and slow calls.
#[derive(Clone, Debug)]
pub struct Admin {
    access: AdminAccess,
    server: AdminServer<AdminState>,
    state: AdminState,
}

impl Admin {
    /// The maximum number of concurrent watchers, such as open pages.
    pub const WATCHERS_MAX: usize = 32;

    /// The maximum length of a log filter.
    pub const FILTER_LEN_MAX: usize = 4096;

    /// Creates the service for the allowed peers.
    pub fn new(access: AdminAccess) -> Self {
        inspect::start_recording();
        process::uptime();
        let state = AdminState { watchers: Arc::new(Semaphore::new(Self::WATCHERS_MAX)), log_filter: Arc::default() };
        Self { access, server: AdminServer::new(state.clone()), state }
    }

    /// Adds the switch of the log level: the current filter, and a function that changes it.
    ///
    /// For `tracing_subscriber`, the function parses the filter and calls `reload::Handle::reload`:
    ///
    /// ```
    /// # use frpc_admin::{Admin, AdminAccess};
    /// # mod tracing_subscriber { pub struct Handle; impl Handle { pub fn reload(&self, _: u8) -> Result<(), std::num::ParseIntError> { Ok(()) } } }
    /// # fn filters() -> tracing_subscriber::Handle { tracing_subscriber::Handle }
    /// let handle = filters();
    /// let admin = Admin::new(AdminAccess::local()).log_filter("info", move |filter| {
    ///     let filter = filter.parse().map_err(|error| format!("{error}"))?;
    ///     handle.reload(filter).map_err(|error| error.to_string())
    /// });
    /// # let _ = admin;
    /// ```
    pub fn log_filter(
        self,
        current: impl Into<String>,
        set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        *self.state.log_filter() = Some(LogFilter { current: current.into(), set: Box::new(set) });
        self
    }

    /// Returns gRPC's channelz service, with the same access.
    pub fn channelz(&self) -> Channelz {
        Channelz::new(self.access.clone())
    }

    /// Returns the page for a path of `frpc_http::Http`, with the same access.
    pub fn page(&self) -> AdminPage {
        AdminPage::new(self.access.clone())
    }
}

impl Service for Admin {
    const NAME: &'static str = <AdminServer<AdminState> as Service>::NAME;
    const METHODS: &'static [Method] = <AdminServer<AdminState> as Service>::METHODS;

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        self.access.check(call.head())?;
        self.server.call(method, call).await
    }
}

#[derive(Clone)]
struct AdminState {
    watchers: Arc<Semaphore>,
    log_filter: Arc<Mutex<Option<LogFilter>>>,
}

struct LogFilter {
    current: String,
    set: Box<SetFilter>,
}

type SetFilter = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl AdminState {
    fn log_filter(&self) -> MutexGuard<'_, Option<LogFilter>> {
        self.log_filter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl admin_server::Admin for AdminState {
    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Streaming<ProcessState>>, Status> {
        let period = match request.into_inner().interval_ms {
            0 => PERIOD,
            millis => Duration::from_millis(millis.into()).max(PERIOD_MIN),
        };
        let permit = self.watchers.clone().try_acquire_owned();
        let permit = permit.map_err(|_| {
            Status::resource_exhausted(format!("the limit of {} watchers is reached", Admin::WATCHERS_MAX))
        })?;
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watcher = Watcher { state: self.clone(), sampler: Sampler::default(), ticks, _permit: permit };
        let states = stream::unfold(watcher, async |mut watcher| {
            watcher.ticks.tick().await;
            let filter = watcher.state.log_filter().as_ref().map(|filter| filter.current.clone());
            Some((Ok(watcher.sampler.state(filter)), watcher))
        });
        Ok(Streaming::new(states).into())
    }

    async fn set_log_filter(
        &self,
        request: Request<SetLogFilterRequest>,
    ) -> Result<Response<SetLogFilterResponse>, Status> {
        let SetLogFilterRequest { filter } = request.into_inner();
        if filter.len() > Admin::FILTER_LEN_MAX {
            let (len, max) = (filter.len(), Admin::FILTER_LEN_MAX);
            return Err(Status::invalid_argument(format!("the filter has {len} bytes, more than {max}")));
        }
        let mut current = self.log_filter();
        let Some(current) = &mut *current else {
            return Err(Status::failed_precondition("this process has no log filter: see `Admin::log_filter`"));
        };
        (current.set)(&filter).map_err(Status::invalid_argument)?;
        let previous = std::mem::replace(&mut current.current, filter);
        Ok(SetLogFilterResponse { previous }.into())
    }
}

/// A caller of `Watch`.
struct Watcher {
    state: AdminState,
    sampler: Sampler,
    ticks: Interval,
    _permit: OwnedSemaphorePermit,
}

/// The default time between two states.
const PERIOD: Duration = Duration::from_secs(1);
/// The minimum time between two states.
const PERIOD_MIN: Duration = Duration::from_millis(100);

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminState").field("watchers", &self.watchers).finish_non_exhaustive()
    }
}
