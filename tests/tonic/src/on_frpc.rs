//! The services on frpc.

use frpc::{Request, Response, Status, Streaming};
use futures_util::TryStreamExt;

use crate::ours::{
    helloworld::{HelloReply, HelloRequest, greeter_server::Greeter},
    routeguide::{Feature, Point, Rectangle, RouteNote, RouteSummary, route_guide_server::RouteGuide},
};

/// Implements both services.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ours;

impl Greeter for Ours {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let asked = request.metadata().get("asked").unwrap_or("nobody").to_owned();
        let message = format!("Hello {}, asks {asked}", request.into_inner().name);
        let mut response = Response::new(HelloReply { message });
        let metadata = response.metadata_mut();
        let inserted = metadata.insert("answered", "by ours").and_then(|()| metadata.insert_bin("key-bin", [0, 255]));
        inserted.map_err(|error| Status::internal(error.to_string()))?;
        Ok(response)
    }
}

impl RouteGuide for Ours {
    async fn get_feature(&self, request: Request<Point>) -> Result<Response<Feature>, Status> {
        let location = request.into_inner();
        match location.latitude {
            0 => Err(Status::not_found("nothing but ☺ here")),
            // Never completes; the caller gives up.
            i32::MAX => std::future::pending().await,
            _ => Ok(Feature { name: "a tree".to_owned(), location: Some(location) }.into()),
        }
    }

    async fn list_features(&self, request: Request<Rectangle>) -> Result<Response<Streaming<Feature>>, Status> {
        let Rectangle { lo, hi } = request.into_inner();
        let corners = [lo, hi].into_iter().flatten();
        Ok(Streaming::from_iter(corners.map(|at| Feature { name: "a corner".to_owned(), location: Some(at) })).into())
    }

    async fn record_route(&self, request: Request<Streaming<Point>>) -> Result<Response<RouteSummary>, Status> {
        let points: Vec<Point> = request.into_inner().try_collect().await?;
        let point_count = points.len().try_into().map_err(|_| Status::out_of_range("too long a way"))?;
        Ok(RouteSummary { point_count, ..RouteSummary::default() }.into())
    }

    async fn route_chat(
        &self,
        request: Request<Streaming<RouteNote>>,
    ) -> Result<Response<Streaming<RouteNote>>, Status> {
        Ok(Streaming::new(
            request.into_inner().and_then(async |note| {
                if note.message.is_empty() { Err(Status::aborted("silence")) } else { Ok(note) }
            }),
        )
        .into())
    }
}
