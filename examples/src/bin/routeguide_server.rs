//! Features along a route: a service with all four kinds of methods.
//!
//! Usage: `routeguide_server [ADDRESS]`, until Ctrl-C.

use std::{
    collections::HashMap,
    env,
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use frpc::{Request, Response, Server, Status, Streaming};
use route_guide::{
    Feature, Point, Rectangle, RouteNote, RouteSummary,
    route_guide_server::{RouteGuide, RouteGuideServer},
};

/// Generated from `proto/routeguide.proto`.
pub mod route_guide {
    frpc::include_proto!("routeguide");
}

#[derive(Default)]
struct Guide {
    notes: Arc<Mutex<Notes>>,
}

/// The notes left at each point.
type Notes = HashMap<Point, Vec<RouteNote>>;

impl RouteGuide for Guide {
    async fn get_feature(&self, request: Request<Point>) -> Result<Response<Feature>, Status> {
        match feature_at(request.get_ref()) {
            Some(feature) => Ok(feature.into()),
            None => Err(Status::not_found("there is nothing to see here")),
        }
    }

    async fn list_features(&self, request: Request<Rectangle>) -> Result<Response<Streaming<Feature>>, Status> {
        let Rectangle { lo: Some(lo), hi: Some(hi) } = request.into_inner() else {
            return Err(Status::invalid_argument("an area has two corners"));
        };
        // A channel suits messages produced one by one: it holds four, and then the task waits for room.
        let (sender, found) = Streaming::channel(4);
        tokio::spawn(async move {
            for feature in features().filter(|feature| is_within(&feature.location.unwrap_or_default(), &lo, &hi)) {
                if sender.send(feature).await.is_err() {
                    return; // The caller has stopped reading.
                }
            }
        });
        Ok(found.into())
    }

    async fn record_route(&self, request: Request<Streaming<Point>>) -> Result<Response<RouteSummary>, Status> {
        let (mut route, mut summary, mut last) = (request.into_inner(), RouteSummary::default(), None);
        while let Some(point) = route.message().await? {
            summary.point_count += 1;
            summary.feature_count += u32::from(feature_at(&point).is_some());
            summary.distance += last.map_or(0, |last| metres_between(&last, &point));
            last = Some(point);
        }
        Ok(summary.into())
    }

    async fn route_chat(
        &self,
        request: Request<Streaming<RouteNote>>,
    ) -> Result<Response<Streaming<RouteNote>>, Status> {
        let (sender, answers) = Streaming::channel(4);
        let (mut left_now, notes) = (request.into_inner(), self.notes.clone());
        tokio::spawn(async move {
            while let Ok(Some(note)) = left_now.message().await {
                for earlier in leave(&notes, note) {
                    if sender.send(earlier).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(answers.into())
    }
}

/// Leaves a note at its location and returns the earlier ones.
fn leave(notes: &Mutex<Notes>, note: RouteNote) -> Vec<RouteNote> {
    let mut notes = notes.lock().expect("never poisoned");
    let here = notes.entry(note.location.unwrap_or_default()).or_default();
    let earlier = here.clone();
    here.push(note);
    earlier
}

fn features() -> impl Iterator<Item = Feature> {
    FEATURES.into_iter().map(|(name, location)| Feature { name: name.into(), location: Some(location) })
}

fn feature_at(point: &Point) -> Option<Feature> {
    features().find(|feature| feature.location.as_ref() == Some(point))
}

fn is_within(point: &Point, a: &Point, b: &Point) -> bool {
    let between = |value: i32, a: i32, b: i32| (a.min(b)..=a.max(b)).contains(&value);
    between(point.latitude, a.latitude, b.latitude) && between(point.longitude, a.longitude, b.longitude)
}

/// Returns the great-circle distance by the haversine formula.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a distance on earth is small and positive")]
fn metres_between(a: &Point, b: &Point) -> u64 {
    let radians = |e7: i32| (f64::from(e7) / 1e7).to_radians();
    let half_sine = |from: i32, to: i32| ((radians(to) - radians(from)) / 2.0).sin().powi(2);
    let along = half_sine(a.latitude, b.latitude)
        + radians(a.latitude).cos() * radians(b.latitude).cos() * half_sine(a.longitude, b.longitude);
    (2.0 * EARTH_RADIUS_METRES * along.sqrt().asin()) as u64
}

const EARTH_RADIUS_METRES: f64 = 6_371_000.0;

/// Places in the south and west of Iceland.
const FEATURES: [(&str, Point); 6] = [
    ("Gullfoss", Point { latitude: 643_271_000, longitude: -201_199_000 }),
    ("Hallgrimskirkja", Point { latitude: 641_420_000, longitude: -219_266_000 }),
    ("Kerid", Point { latitude: 640_413_000, longitude: -208_851_000 }),
    ("Seljalandsfoss", Point { latitude: 636_156_000, longitude: -199_886_000 }),
    ("Strokkur", Point { latitude: 643_128_000, longitude: -203_009_000 }),
    ("Thingvellir", Point { latitude: 642_559_000, longitude: -211_295_000 }),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let server = Server::builder().add_service(RouteGuideServer::new(Guide::default())).bind(address).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
