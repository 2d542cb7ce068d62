// Runs an OpenTelemetry Collector until the end of its input: an OTLP receiver over gRPC, and an exporter that prints
// all metrics and spans. The first line is the address.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

const config = `yaml:
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: %s
exporters:
  debug:
    verbosity: detailed
    use_internal_logger: false
service:
  telemetry:
    metrics:
      level: none
    logs:
      level: warn
  pipelines:
    metrics:
      receivers: [otlp]
      exporters: [debug]
    traces:
      receivers: [otlp]
      exporters: [debug]
`

func main() {
	// The receiver does not tell its port, so it has to be known before.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()

	collector, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Version: "1"},
		Factories: func() (otelcol.Factories, error) {
			receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
			if err != nil {
				return otelcol.Factories{}, err
			}
			exporters, err := otelcol.MakeFactoryMap[exporter.Factory](debugexporter.NewFactory())
			telemetry := otelconftelemetry.NewFactory()
			return otelcol.Factories{Receivers: receivers, Exporters: exporters, Telemetry: telemetry}, err
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{
				URIs:              []string{fmt.Sprintf(config, address)},
				ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for collector.GetState() != otelcol.StateRunning {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("grpc://" + address)
		io.Copy(io.Discard, os.Stdin)
		collector.Shutdown()
	}()
	if err := collector.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
