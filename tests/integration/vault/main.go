// A Vault server with the transit engine and nothing else, in memory, unsealed: for test_vault.py. It prints its address, the token
// of root, and the key that unseals it. Build it with `go build -o DIRECTORY/dejaq-vault .`, where DIRECTORY is on the PATH: it
// takes a quarter of an hour at first, so it is not built for each run of the tests.
package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"

	log "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/builtin/logical/transit"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// noPlugins is a registry that the core asks before it looks into LogicalBackends.
type noPlugins struct{}

func (noPlugins) Contains(string, consts.PluginType) bool { return false }

func (noPlugins) Get(string, consts.PluginType) (func() (interface{}, error), bool) {
	return nil, false
}

func (noPlugins) Keys(consts.PluginType) []string { return nil }

func (noPlugins) DeprecationStatus(string, consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Unknown, false
}

func (noPlugins) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }

func serve() error {
	logger := log.New(&log.LoggerOptions{Output: os.Stderr, Level: log.Warn})
	physical, err := inmem.NewInmem(nil, logger)
	if err != nil {
		return err
	}
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:        physical,
		Logger:          logger,
		DisableMlock:    true,
		LogicalBackends: map[string]logical.Factory{"transit": transit.Factory},
		BuiltinRegistry: noPlugins{},
	})
	if err != nil {
		return err
	}
	result, err := core.Initialize(context.Background(), &vault.InitParams{
		BarrierConfig:  &vault.SealConfig{SecretShares: 1, SecretThreshold: 1},
		RecoveryConfig: nil,
	})
	if err != nil {
		return err
	}
	if _, err = core.Unseal(result.SecretShares[0]); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s %s %s\n", listener.Addr(), result.RootToken, hex.EncodeToString(result.SecretShares[0]))
	return http.Serve(listener, vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core}))
}
