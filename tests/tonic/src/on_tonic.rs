//! The services on tonic.

use std::pin::Pin;

use futures_util::{Stream, TryStreamExt, stream};
use tonic::{
    Request, Response, Status, Streaming,
    metadata::{MetadataMap, MetadataValue},
};

use crate::theirs::{
    helloworld::{HelloReply, HelloRequest, greeter_server::Greeter},
    routeguide::{Feature, Point, Rectangle, RouteNote, RouteSummary, route_guide_server::RouteGuide},
};

/// Implements both services.
#[derive(Clone, Copy, Debug, Default)]
pub struct Theirs;

type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Greeter for Theirs {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let asked = |metadata: &MetadataMap| metadata.get("asked")?.to_str().ok().map(str::to_owned);
        let asked = asked(request.metadata()).unwrap_or("nobody".to_owned());
        let message = format!("Hello {}, asks {asked}", request.into_inner().name);
        let mut response = Response::new(HelloReply { message });
        response.metadata_mut().insert("answered", MetadataValue::from_static("by theirs"));
        response.metadata_mut().insert_bin("key-bin", MetadataValue::from_bytes(&[0, 255]));
        Ok(response)
    }
}

#[tonic::async_trait]
impl RouteGuide for Theirs {
    type ListFeaturesStream = Boxed<Feature>;
    type RouteChatStream = Boxed<RouteNote>;

    async fn get_feature(&self, request: Request<Point>) -> Result<Response<Feature>, Status> {
        let location = request.into_inner();
        match location.latitude {
            0 => Err(Status::not_found("nothing but ☺ here")),
            i32::MAX => std::future::pending().await,
            _ => Ok(Response::new(Feature { name: "a tree".to_owned(), location: Some(location) })),
        }
    }

    async fn list_features(&self, request: Request<Rectangle>) -> Result<Response<Boxed<Feature>>, Status> {
        let Rectangle { lo, hi } = request.into_inner();
        let corners = [lo, hi].into_iter().flatten();
        let corners = corners.map(|at| Ok(Feature { name: "a corner".to_owned(), location: Some(at) }));
        Ok(Response::new(Box::pin(stream::iter(corners))))
    }

    async fn record_route(&self, request: Request<Streaming<Point>>) -> Result<Response<RouteSummary>, Status> {
        let points: Vec<Point> = request.into_inner().try_collect().await?;
        let point_count = points.len().try_into().map_err(|_| Status::out_of_range("too long a way"))?;
        Ok(Response::new(RouteSummary { point_count, ..RouteSummary::default() }))
    }

    async fn route_chat(&self, request: Request<Streaming<RouteNote>>) -> Result<Response<Boxed<RouteNote>>, Status> {
        Ok(Response::new(Box::pin(
            request.into_inner().and_then(async |note| {
                if note.message.is_empty() { Err(Status::aborted("silence")) } else { Ok(note) }
            }),
        )))
    }
}
