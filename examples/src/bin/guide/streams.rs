//! Streams.

use frpc::{Channel, Request, Response, Status, Streaming};

use crate::{
    Outcome,
    route_guide::{
        Feature, Point, Rectangle, RouteNote, RouteSummary,
        route_guide_client::RouteGuideClient,
        route_guide_server::{RouteGuide, RouteGuideServer},
    },
};

struct Guide;

impl RouteGuide for Guide {
    async fn get_feature(&self, _: Request<Point>) -> Result<Response<Feature>, Status> {
        Err(Status::not_found("there is nothing to see here"))
    }

    // ANCHOR: server
    async fn list_features(&self, _: Request<Rectangle>) -> Result<Response<Streaming<Feature>>, Status> {
        let (sender, features) = Streaming::channel(4);
        tokio::spawn(async move {
            for name in ["Gullfoss", "Kerid"] {
                let feature = Feature { name: name.into(), ..Feature::default() };
                if sender.send(feature).await.is_err() {
                    return; // The caller has stopped reading.
                }
            }
        });
        Ok(features.into())
    }
    // ANCHOR_END: server

    async fn record_route(&self, request: Request<Streaming<Point>>) -> Result<Response<RouteSummary>, Status> {
        let (mut points, mut summary) = (request.into_inner(), RouteSummary::default());
        while points.message().await?.is_some() {
            summary.point_count += 1;
        }
        Ok(summary.into())
    }

    async fn route_chat(
        &self,
        request: Request<Streaming<RouteNote>>,
    ) -> Result<Response<Streaming<RouteNote>>, Status> {
        Ok(request.into_inner().into())
    }
}

pub(crate) async fn run() -> Outcome {
    let client = RouteGuideClient::new(Channel::in_process(RouteGuideServer::new(Guide)));
    // ANCHOR: client
    let mut features = client.list_features(Rectangle::default()).await?.into_inner();
    while let Some(feature) = features.message().await? {
        println!("{}", feature.name);
    }

    let points = [Point { latitude: 1, longitude: 2 }, Point { latitude: 3, longitude: 4 }];
    let summary = client.record_route(Streaming::from_iter(points)).await?.into_inner();
    println!("{} points", summary.point_count);
    // ANCHOR_END: client
    Ok(())
}
