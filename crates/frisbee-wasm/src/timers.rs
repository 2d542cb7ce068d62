//! All timers of the program, on one timeout of the browser.

use std::{cell::RefCell, collections::BTreeMap, task::Waker};

use js_sys::{Function, Reflect};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use web_time::Instant;

/// A timer: its end, and its unique number.
pub(crate) type TimerKey = (Instant, u64);

thread_local! {
    static TIMERS: RefCell<Timers> = RefCell::new(Timers::default());
}

#[derive(Default)]
struct Timers {
    wakers: BTreeMap<TimerKey, Waker>,
    next_number: u64,
    /// The end of the earliest timeout requested from the browser.
    requested: Option<Instant>,
    /// The function called by the browser.
    on_timeout: Option<Closure<dyn FnMut()>>,
}

/// Wakes a task after `end`. Returns the key to remove the timer.
pub(crate) fn add(end: Instant, waker: Waker) -> TimerKey {
    TIMERS.with_borrow_mut(|timers| {
        timers.next_number += 1;
        let key = (end, timers.next_number);
        timers.wakers.insert(key, waker);
        timers.request();
        key
    })
}

/// Changes the task of a timer.
pub(crate) fn set_waker(key: TimerKey, waker: &Waker) {
    // Returned out of the borrow: dropping a waker may drop a task with other timers.
    TIMERS.with_borrow_mut(|timers| timers.wakers.get_mut(&key).map(|known| std::mem::replace(known, waker.clone())));
}

pub(crate) fn remove(key: TimerKey) {
    TIMERS.with_borrow_mut(|timers| timers.wakers.remove(&key));
}

impl Timers {
    /// Requests a timeout for the earliest timer, unless the browser already has an earlier one.
    fn request(&mut self) {
        let Some((&(end, _), _)) = self.wakers.first_key_value() else { return };
        if self.requested.is_some_and(|requested| requested <= end) {
            return;
        }
        self.requested = Some(end);
        let on_timeout = self.on_timeout.get_or_insert_with(|| Closure::new(wake_ended));
        set_timeout(on_timeout.as_ref(), end.saturating_duration_since(Instant::now()).as_millis());
    }
}

fn wake_ended() {
    let ended = TIMERS.with_borrow_mut(|timers| {
        timers.requested = None;
        let later = timers.wakers.split_off(&(Instant::now(), u64::MAX));
        let ended = std::mem::replace(&mut timers.wakers, later);
        timers.request();
        ended
    });
    // Outside the borrow: a waker may run code that sets timers.
    ended.into_values().for_each(Waker::wake);
}

/// Calls a function after this time. Windows and workers have the same global function for it.
fn set_timeout(function: &JsValue, millis: u128) {
    // The browser rounds down, and a task woken too early would only request another timeout.
    let millis = u32::try_from(millis.saturating_add(1)).unwrap_or(TIMEOUT_MAX).min(TIMEOUT_MAX);
    let global = js_sys::global();
    let set_timeout = Reflect::get(&global, &"setTimeout".into()).ok().and_then(|it| it.dyn_into::<Function>().ok());
    let Some(set_timeout) = set_timeout else { panic!("this JavaScript environment has no setTimeout") };
    // Fails only for arguments of another type.
    let _ = set_timeout.call2(&global, function, &millis.into());
}

/// The longest timeout of browsers. A later timer gets several in turn.
const TIMEOUT_MAX: u32 = i32::MAX as u32;
