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
	"sync/atomic"
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
	// Another program may take the port before the receiver listens.
	for attempt := 1; ; attempt++ {
		started, err := collect()
		if err == nil {
			return
		}
		if started || attempt == 10 {
			log.Fatal(err)
		}
		log.Print(err)
	}
}

// Collects until the end of the input, and reports whether the collector started.
func collect() (started bool, err error) {
	// The receiver does not tell its port, so it has to be known before.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return false, err
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
		return false, err
	}
	var running atomic.Bool
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for collector.GetState() != otelcol.StateRunning {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
		running.Store(true)
		fmt.Println("grpc://" + address)
		io.Copy(io.Discard, os.Stdin)
		collector.Shutdown()
	}()
	err = collector.Run(context.Background())
	return running.Load(), err
}
