//! Makes one call of each kind. Usage: `routeguide_client [ADDRESS]`

use std::{env, error::Error, time::Duration};

use frpc::{Channel, Code, Request, Status, Streaming};
use route_guide::{Point, Rectangle, RouteNote, route_guide_client::RouteGuideClient};

/// Generated from `proto/routeguide.proto`.
pub mod route_guide {
    frpc::include_proto!("routeguide");
}

const STROKKUR: Point = Point { latitude: 643_128_000, longitude: -203_009_000 };
const GULLFOSS: Point = Point { latitude: 643_271_000, longitude: -201_199_000 };
const BETWEEN: Point = Point { latitude: 643_200_000, longitude: -202_000_000 };

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let channel = Channel::builder().timeout(Duration::from_secs(5)).connect(address).await?;
    let client = RouteGuideClient::new(channel);
    get_feature(&client).await?;
    list_features(&client).await?;
    record_route(&client).await?;
    route_chat(&client).await?;
    Ok(())
}

/// A unary call.
async fn get_feature(client: &RouteGuideClient) -> Result<(), Status> {
    let mut request = Request::new(STROKKUR);
    request.set_timeout(Duration::from_secs(1));
    println!("here is {}", client.get_feature(request).await?.into_inner().name);
    match client.get_feature(BETWEEN).await {
        Err(status) if status.code() == Code::NotFound => println!("further on: {}", status.message()),
        other => println!("further on: {other:?}"),
    }
    Ok(())
}

/// A call with a response stream.
async fn list_features(client: &RouteGuideClient) -> Result<(), Status> {
    let area = Rectangle {
        lo: Some(Point { latitude: 640_000_000, longitude: -215_000_000 }),
        hi: Some(Point { latitude: 650_000_000, longitude: -200_000_000 }),
    };
    let mut features = client.list_features(area).await?.into_inner();
    while let Some(feature) = features.message().await? {
        println!("in the area: {}", feature.name);
    }

    // The call returns before the handler has answered, so an error arrives instead of the first message.
    let mut refused = client.list_features(Rectangle::default()).await?.into_inner();
    if let Err(status) = refused.message().await {
        println!("without an area: {status}");
    }
    Ok(())
}

/// A call with a request stream.
async fn record_route(client: &RouteGuideClient) -> Result<(), Status> {
    let route = Streaming::from_iter([STROKKUR, BETWEEN, GULLFOSS]);
    let summary = client.record_route(route).await?.into_inner();
    println!("{} points, {} features, {} m", summary.point_count, summary.feature_count, summary.distance);
    Ok(())
}

/// A call with a stream in each direction at the same time.
async fn route_chat(client: &RouteGuideClient) -> Result<(), Status> {
    let (sender, notes) = Streaming::channel(4);
    tokio::spawn(async move {
        for (number, place) in [STROKKUR, GULLFOSS, STROKKUR, STROKKUR].into_iter().enumerate() {
            let note = RouteNote { location: Some(place), message: format!("note {number}") };
            if sender.send(note).await.is_err() {
                return; // The server has stopped reading.
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut earlier = client.route_chat(notes).await?.into_inner();
    while let Some(note) = earlier.message().await? {
        println!("somebody was here: {}", note.message);
    }
    Ok(())
}
